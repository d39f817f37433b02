#include "observe/trace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace skein {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

class TraceFile : public testing::Test {
 protected:
  ~TraceFile() override { std::filesystem::remove(path); }
  Json joined(int size) const {
    TraceRecorder::join_parts(path, size, path);
    std::ifstream file(path);
    return Json::parse(file);
  }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("skein-trace-" + std::to_string(::getpid()));
};

TEST_F(TraceFile, HoldsTheEventsOfAllWorkersFromTheEarliestOn) {
  TraceRecorder first(0), third(2);
  first.span(Lane::forward, "forward", Time(5ms), Time(7ms));
  third.span(Lane::update, "a \"name\"\n", Time(4ms), Time(4500us));
  first.write_part(path);
  third.write_part(path);
  const Json trace = joined(3);  // rank 1 was lost
  EXPECT_EQ(trace["otherData"]["dropped_events"], 0);
  std::vector<Json> spans;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X") spans.push_back(event);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["pid"], 0);
  EXPECT_EQ(spans[0]["ts"], 1000);
  EXPECT_EQ(spans[0]["dur"], 2000);
  EXPECT_EQ(spans[1]["ts"], 0);
  EXPECT_EQ(spans[1]["name"], "a \"name\"\n");
  EXPECT_EQ(spans[1]["cat"], "update");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_FALSE(
        std::filesystem::exists(path.string() + ".rank-" + std::to_string(rank) + ".part"));
}

TEST_F(TraceFile, MayHoldNothing) {
  TraceRecorder(0).write_part(path);
  EXPECT_EQ(joined(2)["traceEvents"].size(), 1u);  // the worker's name
}

}  // namespace
}  // namespace skein
