// What a worker's own thread does with its time, each moment once.
#include "core/worker_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace skein {
namespace {

using namespace std::chrono_literals;

// In milliseconds.
struct Seen {
  Lane lane;
  std::string name;
  std::int64_t begin, end;
  auto operator<=>(const Seen&) const = default;
};

class Spans final : public Trace {
 public:
  void span(Lane lane, std::string_view name, Time begin, Time end) override {
    seen.push_back({lane, std::string(name), ms(begin), ms(end)});
  }
  std::vector<Seen> sorted() const {
    auto all = seen;
    std::sort(all.begin(), all.end(),
              [](const Seen& a, const Seen& b) { return a.begin < b.begin; });
    return all;
  }
  std::vector<Seen> seen;

 private:
  static std::int64_t ms(Time time) { return time.time_since_epoch() / 1ms; }
};

Time at(int ms) { return Time(std::chrono::milliseconds(ms)); }

class WorkerTimeTest : public testing::Test {
 protected:
  WorkerTimeTest() { time_.pass_on_to(&spans_); }
  void span(Lane lane, int begin, int end) { time_.span(lane, "", at(begin), at(end)); }

  Spans spans_;
  WorkerTime time_;
};

TEST_F(WorkerTimeTest, CutsForwardAndBackwardWhereTheyWait) {
  span(Lane::wait, 2, 5);
  span(Lane::wait, 6, 9);
  span(Lane::forward, 0, 10);
  span(Lane::wait, 10, 12);
  span(Lane::backward, 10, 20);
  EXPECT_EQ(spans_.sorted(), (std::vector<Seen>{{Lane::forward, "", 0, 2},
                                                {Lane::wait, "", 2, 5},
                                                {Lane::forward, "", 5, 6},
                                                {Lane::wait, "", 6, 9},
                                                {Lane::forward, "", 9, 10},
                                                {Lane::wait, "", 10, 12},
                                                {Lane::backward, "", 12, 20}}));
  EXPECT_EQ(time_.waiting(), 8ms);
  EXPECT_EQ(time_.updating(), 0ms);
}

TEST_F(WorkerTimeTest, CutsWhatIsReportedAfterALaterWait) {
  span(Lane::wait, 3, 5);
  span(Lane::wait, 10, 12);
  span(Lane::loading, 0, 2);
  span(Lane::forward, 2, 10);
  span(Lane::backward, 10, 20);
  EXPECT_EQ(spans_.sorted(), (std::vector<Seen>{{Lane::loading, "", 0, 2},
                                                {Lane::forward, "", 2, 3},
                                                {Lane::wait, "", 3, 5},
                                                {Lane::forward, "", 5, 10},
                                                {Lane::wait, "", 10, 12},
                                                {Lane::backward, "", 12, 20}}));
}

TEST_F(WorkerTimeTest, CutsAWaitWhereAnUpdateIsMade) {
  span(Lane::update, 6, 8);
  span(Lane::update, 2, 3);
  span(Lane::wait, 0, 10);
  span(Lane::wait, 20, 21);
  EXPECT_EQ(spans_.sorted(), (std::vector<Seen>{{Lane::wait, "", 0, 2},
                                                {Lane::update, "", 2, 3},
                                                {Lane::wait, "", 3, 6},
                                                {Lane::update, "", 6, 8},
                                                {Lane::wait, "", 8, 10},
                                                {Lane::wait, "", 20, 21}}));
  EXPECT_EQ(time_.waiting(), 8ms);
  EXPECT_EQ(time_.updating(), 3ms);
}

TEST_F(WorkerTimeTest, HidesAnUpdateThatIsMadeBesideForward) {
  span(Lane::update, 1, 4);  // the worker waits from 3 on
  span(Lane::wait, 3, 5);
  span(Lane::update, 6, 7);
  span(Lane::forward, 0, 8);
  EXPECT_EQ(spans_.sorted(), (std::vector<Seen>{{Lane::forward, "", 0, 3},
                                                {Lane::hidden_update, "", 1, 3},
                                                {Lane::update, "", 3, 4},
                                                {Lane::wait, "", 4, 5},
                                                {Lane::forward, "", 5, 8},
                                                {Lane::hidden_update, "", 6, 7}}));
  EXPECT_EQ(time_.waiting(), 1ms);
  EXPECT_EQ(time_.updating(), 1ms);
}

TEST_F(WorkerTimeTest, CountsNoEvaluationAsWaiting) {
  span(Lane::update, 1, 2);  // the last one, which the evaluation flushes
  span(Lane::evaluation, 0, 9);
  EXPECT_EQ(spans_.sorted(), (std::vector<Seen>{{Lane::evaluation, "", 0, 1},
                                                {Lane::update, "", 1, 2},
                                                {Lane::evaluation, "", 2, 9}}));
  EXPECT_EQ(time_.waiting() + time_.updating(), 0ms);
}

TEST_F(WorkerTimeTest, PassesCommunicationOnAsItIs) {
  span(Lane::all_reduce, 1, 5);
  span(Lane::wait, 0, 3);
  EXPECT_EQ(spans_.seen.front(), (Seen{Lane::all_reduce, "", 1, 5}));
}

TEST_F(WorkerTimeTest, ShowsEachMomentOfRandomStepsOnce) {
  std::mt19937 random(1);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  int now = 0;
  std::vector<std::pair<int, int>> updates;
  const auto update_by = [&](int end) {
    const int first = updates.empty() ? 0 : updates.back().second;
    if (first >= end || draw(2) == 0) return;
    const int begin = first + draw(end - first), to = begin + 1 + draw(end - begin);
    updates.emplace_back(begin, to);
    span(Lane::update, begin, to);
  };
  std::int64_t rest = 0;
  for (int step = 0; step < 300; ++step) {
    for (const Lane lane : {Lane::loading, Lane::forward, Lane::backward}) {
      const int begin = now;
      for (int wait = draw(4); wait > 0; --wait) {
        const int from = now + draw(10), to = from + 1 + draw(10);
        update_by(to);
        span(Lane::wait, from, to);
        rest += to - from;
        now = to;
      }
      now += 1 + draw(10);
      update_by(now);
      span(lane, begin, now);
    }
    const int begin = now;
    now += 1 + draw(20);
    update_by(now);
    span(Lane::wait, begin, now);
    rest += now - begin;
  }
  // The own thread's spans follow each other without a gap, from the first to the last.
  std::int64_t end = 0, hidden = 0, shown = 0;
  for (const Seen& each : spans_.sorted()) {
    if (each.lane == Lane::hidden_update) {
      hidden += each.end - each.begin;
      continue;
    }
    ASSERT_EQ(each.begin, end);
    end = each.end;
    if (each.lane == Lane::update) shown += each.end - each.begin;
  }
  EXPECT_EQ(end, now);
  std::int64_t updated = 0;
  for (const auto& [from, to] : updates) updated += to - from;
  EXPECT_EQ(shown + hidden, updated);
  EXPECT_GT(shown, 0);
  EXPECT_GT(hidden, 0);
  EXPECT_EQ(time_.updating(), std::chrono::milliseconds(shown));
  EXPECT_EQ(time_.waiting() + time_.updating(), std::chrono::milliseconds(rest));
}

}  // namespace
}  // namespace skein
