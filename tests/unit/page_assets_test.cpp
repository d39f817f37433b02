#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "page/assets.h"
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
