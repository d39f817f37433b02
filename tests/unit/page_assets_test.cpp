#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "core/field_names.h"
#include "page/assets.h"
#include "page/rank_timeline.h"
#include "page/self_contained.h"
#include "skein/error.h"

namespace skein {
namespace {

using Json = nlohmann::json;

TEST(PageAssets, AreThoseOfTheFolder) {
  EXPECT_NE(asset("style.css").find("--series-9"), std::string_view::npos);
  EXPECT_NE(asset("plots.js").find("skein.linePlot"), std::string_view::npos);
  EXPECT_TRUE(asset("plots").empty());
  EXPECT_TRUE(asset("../assets/plots.js").empty());
}

// Of each row that the server sends, and of what the page shows of a summary.
TEST(PageAssets, SpellFieldsAsTheProgramDoes) {
  const std::string live(asset("live.js"));
  for (const char* name :
       {field::kStep,      field::kSamples,     field::kSeconds,       field::kLoss,
        field::kAccuracy,  field::kIterationMs, field::kExposedCommMs, field::kSamplesPerSecond,
        field::kBudget,    field::kStarted,     field::kStrategy,      field::kWorkers,
        field::kDevice,    field::kResumedFrom, field::kRunId,         field::kConfig,
        field::kModel,     field::kData,        field::kPerWorker,     field::kBusyFraction,
        field::kBytesSent, field::kLost,        field::kRank})
    EXPECT_TRUE(std::regex_search(live, std::regex(fmt::format("\\.{}\\b", name)))) << name;
  for (const char* name : {field::kIterationMs, field::kExposedCommMs, field::kLearningRate,
                           field::kConsensusDistance})
    EXPECT_NE(live.find(fmt::format("points('{}'", name)), std::string::npos) << name;
}

TEST(PageAssets, KnowTheColumnsOfUsage) {
  const std::string live(asset("live.js"));
  const RankTimeline timeline("nowhere", 0);
  for (const Downsampled::Column& column : timeline.usage().columns()) {
    if (column.name == std::string("communication")) continue;  // it runs beside the rest
    EXPECT_TRUE(std::regex_search(live, std::regex(fmt::format("[.']{}\\b", column.name))))
        << column.name;
  }
}

TEST(ScriptSafe, NothingEndsTheElementAndParsingGivesTheSame) {
  const Json json{{"</script><script>alert(1)</script>", "<!-- <script>"},
                  {"quotes", "\"\\ \n \xE2\x80\xA8 ü"},
                  {"list", {1, -0.5, nullptr, "<<"}}};
  const std::string text = script_safe(json);
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
  EXPECT_EQ(Json::parse(text), json);
}

TEST(ScriptSafe, BytesThatAreNoTextDoNotThrow) {
  EXPECT_NO_THROW(script_safe(Json{{"log", "\xFF\xFE"}}));
}

}  // namespace
}  // namespace skein
