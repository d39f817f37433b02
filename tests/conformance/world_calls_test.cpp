// What workers call together: what it gives, and what they learn when they do not call the same.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "conformance/joined.h"
#include "skein/world.h"

namespace skein {
namespace {

using std::chrono::milliseconds;
using test::in_both_ways;
using test::on_workers;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string text_of(int rank) {
  std::string text = "rank " + std::to_string(rank) + std::string(1'500'000, 'x');
  text[3] = '\0';
  return text;
}

TEST(WorldCalls, MaxAndMinFollowTheirRuleForNaN) {
  for (const int size : {1, 2, 3, 5})
    in_both_ways(size, [size](World& world) {
      const int r = world.rank(), last = size - 1;
      const auto most = world.max({r * 1.5, -r * 1.0, r == last ? kNaN : 7});
      EXPECT_EQ(most[0], last * 1.5);
      EXPECT_EQ(most[1], 0);
      EXPECT_TRUE(std::isnan(most[2]));
      const auto least = world.min({r * 1.5, r == 0 ? kNaN : -HUGE_VAL, r == 0 ? -0.0 : 0.0});
      EXPECT_EQ(least[0], 0);
      EXPECT_TRUE(std::isnan(least[1]));
      EXPECT_TRUE(std::signbit(least[2])) << "of equal zeros that of the lowest rank";
      EXPECT_EQ(world.max_integers({kMost - r, -r}), (std::vector<std::int64_t>{kMost, 0}));
      EXPECT_EQ(world.min_integers({-kMost + r, -r}), (std::vector<std::int64_t>{-kMost, -last}));
    });
}

TEST(WorldCalls, ManyValuesAreAsExactAsFew) {
  in_both_ways(3, [](World& world) {
    constexpr std::int64_t kMany = 200'000;
    std::vector<double> values;
    std::vector<std::int64_t> integers;
    for (std::int64_t i = 0; i < kMany; ++i) {
      values.push_back(static_cast<double>(i % 3 == world.rank() ? i : -i));
      integers.push_back(kMost / 4 - i * (world.rank() + 1));
    }
    const auto most = world.max(values);
    const auto sums = world.sum_integers(integers), least = world.min_integers(integers);
    for (std::size_t i = 0; i < kMany; ++i) {
      const auto n = static_cast<std::int64_t>(i);
      ASSERT_EQ(most[i], static_cast<double>(n));
      ASSERT_EQ(sums[i], 3 * (kMost / 4) - 6 * n);
      ASSERT_EQ(least[i], kMost / 4 - 3 * n);
    }
  });
}

TEST(WorldCalls, BroadcastsAreTheRootsWhateverTheOthersPass) {
  for (const int size : {1, 3})
    in_both_ways(size, [size](World& world) {
      const int root = size - 1;
      const bool own = world.rank() == root;
      EXPECT_EQ(world.broadcast(own ? std::vector<double>{1, -0.5} : std::vector<double>(9), root),
                (std::vector<double>{1, -0.5}));
      EXPECT_EQ(world.broadcast_integers({own ? kMost : 3}, root),
                std::vector<std::int64_t>{kMost});
      EXPECT_EQ(world.broadcast_text(own ? "" : "something", root), "");
      EXPECT_TRUE(world.broadcast_text(text_of(world.rank()), root) == text_of(root));
      try {
        world.broadcast({1}, size);
        ADD_FAILURE() << "a root that there is not";
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("expected a rank from 0 to"), std::string::npos);
      }
    });
}

TEST(WorldCalls, WhatIsGatheredIsEverybodysOwn) {
  in_both_ways(3, [](World& world) {
    const std::int64_t r = world.rank();
    const auto rows = world.gather_integers({kMost - r, r, r, r, r});
    const auto texts = world.gather_text(text_of(world.rank()).substr(0, 2 + 400'000 * (2 - r)));
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      EXPECT_EQ(rows[i], (std::vector<std::int64_t>{kMost - rank, rank, rank, rank, rank}));
      EXPECT_TRUE(texts[i] == text_of(rank).substr(0, 2 + 400'000 * (2 - i)));
    }
  });
}

using Call = std::pair<const char*, std::function<void(World&)>>;
const std::vector<Call>& calls() {
  static const std::vector<Call> all{
      {"barrier", [](World& w) { w.barrier(); }},
      {"barrier 'after loading'", [](World& w) { w.barrier("after loading"); }},
      {"sum of 3 values",
       [](World& w) {
         w.sum({1, 2, 3});
       }},
      {"sum of 70000 values", [](World& w) { w.sum(std::vector<double>(70000)); }},
      {"sum of 3 integers",
       [](World& w) {
         w.sum_integers({1, 2, 3});
       }},
      {"max of 1 value", [](World& w) { w.max({1}); }},
      {"min of 9 integers", [](World& w) { w.min_integers(std::vector<std::int64_t>(9)); }},
      {"gather of 2 values",
       [](World& w) {
         w.gather({1, 2});
       }},
      {"gather of texts", [](World& w) { w.gather_text(std::string(100'000, 'x')); }},
      {"broadcast of values from rank 1", [](World& w) { w.broadcast({1}, 1); }},
      {"broadcast of a text from rank 0", [](World& w) { w.broadcast_text("x"); }},
      {"group of ranks 0, 1",
       [](World& w) {
         w.group({0, 1});
       }},
      {"split", [](World& w) { w.split(0); }}};
  return all;
}

// Each beside each of the others, on different ranks; afterwards the world is as it was.
TEST(WorldCalls, DifferentCallsAreAnErrorOnAllThatSaysWhoCalledWhat) {
  in_both_ways(3, [](World& world) {
    for (std::size_t i = 0; i < calls().size(); ++i)
      for (std::size_t j = 0; j < calls().size(); ++j) {
        if (i == j) continue;
        const std::string expected =
            std::string("the workers made different calls: ranks 0, 2 called ") + calls()[i].first +
            ", rank 1 called " + calls()[j].first + "; expected the same of all";
        try {
          calls()[world.rank() == 1 ? j : i].second(world);
          ADD_FAILURE() << expected;
        } catch (const ConfigError& error) {
          EXPECT_EQ(error.what(), expected);
        }
      }
    EXPECT_EQ(world.sum({1})[0], 3);
  });
}

// Rank 0 comes much later than rank 1 and waits for other ranks: still nobody takes it for missing.
TEST(WorldCalls, WhoDoesNotComeIsNamedWithTheCall) {
  on_workers(
      4,
      [](World& world) {
        world.barrier();
        if (world.rank() == 2) return std::this_thread::sleep_for(milliseconds(2000));
        if (world.rank() == 0) std::this_thread::sleep_for(milliseconds(300));
        try {
          world.barrier("after loading");
          ADD_FAILURE() << "without rank 2";
        } catch (const IoError& error) {
          EXPECT_NE(
              std::string(error.what()).find("rank 2 has not come to barrier 'after loading'"),
              std::string::npos)
              << error.what();
        }
        try {
          world.sum({1});
          ADD_FAILURE() << "after a call that failed";
        } catch (const IoError& error) {
          EXPECT_NE(std::string(error.what()).find("sum of 1 value cannot be: a call before"),
                    std::string::npos)
              << error.what();
        }
        std::this_thread::sleep_for(milliseconds(300));  // so that the others hear of it
      },
      milliseconds(800));
}

// While it waits in the call for rank 2, to which all may have come when it dies; to the next one
// it does not.
TEST(WorldCalls, ARankThatDiesIsNamedWithTheCall) {
  for (const auto& [name, call] : calls()) {
    SCOPED_TRACE(name);
    on_workers(
        3,
        [&, name = name, call = call](World& world) {
          world.barrier();
          std::thread killer([r = world.rank()] {
            std::this_thread::sleep_for(milliseconds(20));
            if (r == 1) ::kill(::getpid(), SIGKILL);
          });
          if (world.rank() == 2) killer.join();
          try {
            call(world);
            if (world.rank() == 1) killer.join();
            call(world);
            ADD_FAILURE() << "without rank 1";
          } catch (const IoError& error) {
            EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
            EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
            EXPECT_EQ(error.peer(), 1);
          }
          if (killer.joinable()) killer.join();
        },
        std::chrono::seconds(20), 1);
  }
}

TEST(WorldGroups, DoTheirOwnCallsBesideEachOther) {
  on_workers(5, [](World& world) {
    const int r = world.rank();
    Group ends = world.group({4, 0});
    EXPECT_EQ(ends.ranks(), (std::vector<int>{0, 4}));
    EXPECT_EQ(ends.member(), r % 4 == 0);
    if (ends.member()) {
      EXPECT_EQ(ends.rank(), r / 4);
      EXPECT_EQ(ends.sum({1.0 * r})[0], 4);
    } else {
      EXPECT_THROW(ends.sum({1}), ConfigError);
    }
    // The groups do different things, different numbers of times.
    Group mine = world.split(r % 2);
    for (int i = 0; i <= r % 2; ++i) {
      EXPECT_EQ(mine.size(), r % 2 == 0 ? 3 : 2);
      EXPECT_EQ(mine.broadcast_text("of rank " + std::to_string(r), 1),
                r % 2 == 0 ? "of rank 2" : "of rank 3");
      mine.barrier("odd and even");
    }
    EXPECT_EQ(world.sum_integers({1})[0], 5);
    for (const std::vector<int>& bad : {std::vector<int>{}, {0, 5}, {-1}, {2, 2}})
      EXPECT_THROW(world.group(bad), ConfigError);
  });
}

TEST(WorldGroups, ErrorsNameTheWorldsRanks) {
  on_workers(4, [](World& world) {
    Group odd = world.split(world.rank() % 2);
    if (world.rank() % 2 == 0) return world.barrier();
    try {
      world.rank() == 1 ? (void)odd.sum({1}) : odd.barrier();
      ADD_FAILURE() << "different calls";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()),
                "the workers made different calls: rank 1 called sum of 1 value, rank 3 called "
                "barrier; expected the same of all");
    }
    world.barrier();
  });
}

// As the others may still use it.
TEST(WorldGroups, OutliveTheirWorld) {
  on_workers(2, [](World& world) {
    std::unique_ptr<Group> group;
    {
      const World gone = std::move(world);
      group = std::make_unique<Group>(World(gone.share()).group({0, 1}));
    }
    EXPECT_EQ(group->sum({1})[0], 2);
  });
}

}  // namespace
}  // namespace skein
