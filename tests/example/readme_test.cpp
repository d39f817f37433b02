// Runs the commands that examples/README.md shows and compares what they print with what stands
// there.
#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

#include "installed.h"
#include "multiproc/model_file.h"

namespace skein::testing {
namespace {

const std::string kReadme = SKEIN_SOURCE_DIR "/examples/README.md";

struct Shown {
  std::string command, output;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Lines that begin with "$ ", each with what follows up to the next or to the block's end.
std::vector<Shown> shown_in(const std::string& text) {
  std::vector<Shown> shown;
  bool within = false;
  for (const std::string& line : lines_of(text)) {
    within = line.starts_with("$ ") || (within && !line.starts_with("```"));
    if (line.starts_with("$ "))
      shown.push_back({line.substr(2), ""});
    else if (within)
      shown.back().output += line + "\n";
  }
  return shown;
}

// The command with the programs where they are; none when this machine cannot run it.
std::vector<std::string> located(const std::string& command, const std::string& folder) {
  std::vector<std::string> argv{"env", "-C", folder};
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    if (word == "mpirun") {
      const std::string mpirun = SKEIN_MPIEXEC;
      if (mpirun.empty()) return {};
      argv.insert(argv.end(), {"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", mpirun});
    } else if (word == "skein") {
      argv.push_back(Installed::get().skein());
    } else {
      const std::string program = Installed::get().example(word);
      argv.push_back(std::filesystem::is_regular_file(program) ? program : word);
    }
  }
  return argv;
}

// Other LibTorches have other last digits.
std::string without_fractions(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(\d+\.\d+)"), "0.0");
}

double last_figure(const std::string& text) {
  double last = NAN;
  const std::regex figure(R"(\d+\.\d+)");
  for (std::sregex_iterator each(text.begin(), text.end(), figure), end; each != end; ++each)
    last = std::stod(each->str());
  return last;
}

// Whether the last figure is near the one shown: what was to be learnt was learnt.
void expect_learnt(const Shown& shown, const std::string& printed) {
  const double expected = last_figure(shown.output), now = last_figure(printed);
  if (shown.output.find("%") != std::string::npos)
    EXPECT_GT(now, expected - 5) << shown.command << "\n" << printed;
  else
    EXPECT_LT(now, 2 * expected + 0.15) << shown.command << "\n" << printed;
}

TEST(Examples, PrintWhatTheirReadmeShows) {
  const Folder folder;
  Installed::get().build();
  std::map<std::string, std::string> printed;
  for (const Shown& shown : shown_in(contents(kReadme))) {
    const auto argv = located(shown.command, folder.path());
    if (argv.empty()) continue;
    const std::string out = must(argv);
    EXPECT_EQ(without_fractions(out), without_fractions(shown.output)) << shown.command;
    expect_learnt(shown, out);
    printed[shown.command] = out;
  }
  EXPECT_GE(printed.size(), 7U) << "too few commands were found in " << kReadme;

  // Whoever starts the workers, and however many, the figures are the same.
  const std::string one = printed.at("anywhere"), two = printed.at("skein run -n 2 -- anywhere");
  EXPECT_EQ(one.substr(0, one.rfind("trained")), two.substr(0, two.rfind("trained")));
  for (const auto& [command, out] : printed)
    EXPECT_TRUE(!command.starts_with("mpirun") || out == two) << command << "\n" << out;
  EXPECT_EQ(printed.at("before"), printed.at("skein run -n 2 -- after"));

  // Tied weights are one tensor, which has one name in the file.
  const auto model = read_model(folder / "language_model.safetensors");
  int of_letters = 0;
  for (const auto& [name, tensor] : model) of_letters += tensor.size() == 128 * 64;
  EXPECT_EQ(of_letters, 1);
}

TEST(Examples, TheShortestHasUnderThirtyLines) {
  EXPECT_LT(lines_of(contents(SKEIN_SOURCE_DIR "/examples/shortest.cpp")).size(), 30U);
}

// The lines that differ, as a document's block ```diff shows them.
TEST(Examples, TheDifferenceThatTheDocumentsShowIsTheRealOne) {
  const std::string folder = SKEIN_SOURCE_DIR "/examples/migrate/";
  const Finished diff =
      Process({"diff", "-U", "0", folder + "before.cpp", folder + "after.cpp"}).wait(kLimit);
  ASSERT_EQ(diff.code, 1) << diff.err;
  std::string real;
  int added = 0;
  for (const std::string& line : lines_of(diff.out)) {
    if (line.starts_with("---") || line.starts_with("+++") || line.starts_with("@@")) continue;
    real += line + "\n";
    added += line.starts_with("+");
  }
  EXPECT_LE(added, 5) << real;
  for (const std::string document : {"/examples/README.md", "/docs/library.md"})
    EXPECT_NE(contents(SKEIN_SOURCE_DIR + document).find("```diff\n" + real + "```"),
              std::string::npos)
        << document << " does not show this difference:\n"
        << real;
}

}  // namespace
}  // namespace skein::testing
