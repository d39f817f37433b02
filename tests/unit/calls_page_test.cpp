// docs/what-may-i-call-when.md and the headers' last lines: every public function says who calls
// it, and when.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace skein {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(SKEIN_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Functions {
  std::set<std::string> names;
  std::set<std::string> said;  // those of which a declaration says who calls it
};

// The public functions of a class, as our headers are formatted: two spaces before a declaration.
Functions public_functions(const std::string& header, const std::string& name) {
  Functions functions;
  std::istringstream lines(text_of(header));
  const std::regex called(
      "  // Called by: (all workers|each worker for itself|any worker), "
      "(between steps|within a step|at any time|before the first step|before "
      "anything else), (at any pace|after the same step|at its own pace|once)\\.");
  const std::regex function("(?:^|[ &*>])([a-z][a-z_]*)\\(");
  bool inside = false, shown = false, says = false, internal = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("class " + name + " ") && !line.ends_with(";")) inside = true;
    if (!inside) continue;
    if (line.starts_with("};")) break;
    if (line == " public:" || line == " private:" || line == " protected:") shown = line[2] == 'u';
    if (line.starts_with("  // ")) {
      says = says || std::regex_match(line, called);
      internal = internal || line.starts_with("  // Internal: ");
      if (line.find("Called by:") != std::string::npos && !std::regex_match(line, called))
        ADD_FAILURE() << header << ": " << line;
      continue;
    }
    std::smatch match;
    const bool begins = line.size() > 2 && line.starts_with("  ") && line[2] != ' ';
    if (shown && begins && !internal && !line.starts_with("  template") &&
        std::regex_search(line, match, function)) {
      functions.names.insert(match[1]);
      if (says) functions.said.insert(match[1]);
    }
    if (line.empty()) says = internal = false;
  }
  return functions;
}

class CallsPage : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {
};

TEST_P(CallsPage, HasEveryPublicFunction) {
  const auto& [header, type, prefix] = GetParam();
  const Functions functions = public_functions(header, type);
  const std::string page = text_of("docs/what-may-i-call-when.md");
  EXPECT_GT(functions.names.size(), 3u) << type;
  for (const std::string& name : functions.names) {
    EXPECT_TRUE(page.find("`" + (prefix + name) + "()`") != std::string::npos ||
                page.find("`" + (std::string(type) + "::" + name) + "()`") != std::string::npos)
        << name << "() of " << type << " is not in docs/what-may-i-call-when.md";
    EXPECT_TRUE(functions.said.contains(name))
        << header << ": no declaration of " << name << "() ends its comment with 'Called by: …'";
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, CallsPage,
                         testing::Values(std::tuple("include/skein/torch.h", "Distributed", "run."),
                                         std::tuple("include/skein/world.h", "World", "world."),
                                         std::tuple("include/skein/workers.h", "Workers",
                                                    "world.")),
                         [](const auto& info) { return std::string(std::get<1>(info.param)); });

TEST(PublicFunctions, AreFoundInAClass) {
  const Functions run = public_functions("include/skein/torch.h", "Distributed");
  for (const char* name : {"step", "share", "flush", "every", "save_checkpoint", "optimizer"})
    EXPECT_TRUE(run.names.contains(name)) << name;
  for (const char* name : {"impl", "make"}) EXPECT_FALSE(run.names.contains(name)) << name;
}

}  // namespace
}  // namespace skein
