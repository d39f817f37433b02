// What the registry says of strategies, and whether the documentation says the same.
#include "strategy/registry.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "skein/error.h"

namespace skein {
namespace {

std::string page(const std::string& path) {
  std::ifstream file(std::string(SKEIN_SOURCE_DIR) + "/docs/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The cells of the row of `name` in the table of docs/strategies.md, trimmed.
std::vector<std::string> row_of(const std::string& name) {
  std::istringstream lines(page("strategies.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| [`" + name + "`]")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');)
      cells.push_back(cell.substr(1, cell.size() - 2));
    return cells;
  }
  return {};
}

TEST(StrategyRegistry, SaysWhatTheTableOfStrategiesSays) {
  for (const StrategyInfo& each : strategies()) {
    const auto cells = row_of(each.name);
    ASSERT_EQ(cells.size(), 6u) << each.name;
    EXPECT_EQ(cells[1], each.traits.waits_for) << each.name;
    EXPECT_EQ(cells[2], each.traits.updates) << each.name;
    EXPECT_TRUE(cells[3].starts_with(std::to_string(each.traits.planes))) << each.name;
    EXPECT_TRUE(cells[4].starts_with(each.traits.repeats ? "yes" : "no")) << each.name;
    EXPECT_TRUE(cells[5].starts_with(each.traits.survives_losses ? "yes" : "no")) << each.name;
  }
}

TEST(StrategyRegistry, HasEveryOptionOnThePageOfItsStrategy) {
  for (const StrategyInfo& each : strategies()) {
    const std::string name = each.name == "gossip"  ? "acid"
                             : each.name == "local" ? "lasgd"
                                                    : each.name;
    const std::string text = page(name + ".md");
    for (const OptionInfo& option : each.options)
      EXPECT_TRUE(text.find("`" + option.name + "=") != std::string::npos ||
                  text.find("`" + option.name + " = ") != std::string::npos)
          << "docs/" << name << ".md has no option " << option.name << " of " << each.name;
  }
}

TEST(StrategyRegistry, DescribesOptionsThatHoldAsTheyAreSaid) {
  std::set<char> letters;
  for (const StrategyInfo& each : strategies()) {
    EXPECT_TRUE(letters.insert(each.traits.letter).second) << each.name;
    std::set<std::string> names;
    for (const OptionInfo& option : each.options) {
      EXPECT_TRUE(names.insert(option.name).second) << option.name;
      EXPECT_FALSE(option.what.empty() || option.allowed.empty()) << option.name;
      EXPECT_NO_THROW(check_strategy(each.name, {{option.name, option.fallback}})) << option.name;
      if (option.name == "topology") continue;  // read when the number of workers is known
      EXPECT_THROW(check_strategy(each.name, {{option.name, "no such value"}}), ConfigError)
          << each.name << " " << option.name;
    }
  }
}

TEST(StrategyRegistry, NamesWhatItKnowsWhereAnOptionIsUnknown) {
  try {
    check_strategy("local", {{"warmup", "5"}});
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "strategy local has no option 'warmup': it knows period, outer_momentum");
  }
}

}  // namespace
}  // namespace skein
