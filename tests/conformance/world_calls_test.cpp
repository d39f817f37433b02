// What workers call together: what it gives, and what they learn when they do not call the same.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <new>
#include <thread>

#include "conformance/joined.h"
#include "runtime/calls.h"
#include "runtime/world_impl.h"
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
      {"world.barrier()", [](World& w) { w.barrier(); }},
      {"world.barrier(\"after loading\")", [](World& w) { w.barrier("after loading"); }},
      {"world.sum() of 3 values",
       [](World& w) {
         w.sum({1, 2, 3});
       }},
      {"world.sum() of 70000 values", [](World& w) { w.sum(std::vector<double>(70000)); }},
      {"world.sum_integers() of 3 integers",
       [](World& w) {
         w.sum_integers({1, 2, 3});
       }},
      {"world.max() of 1 value", [](World& w) { w.max({1}); }},
      {"world.min_integers() of 9 integers",
       [](World& w) { w.min_integers(std::vector<std::int64_t>(9)); }},
      {"world.gather() of 2 values",
       [](World& w) {
         w.gather({1, 2});
       }},
      {"world.gather_text()", [](World& w) { w.gather_text(std::string(100'000, 'x')); }},
      {"world.broadcast() from rank 1", [](World& w) { w.broadcast({1}, 1); }},
      {"world.broadcast_text() from rank 0", [](World& w) { w.broadcast_text("x"); }},
      {"world.group() of ranks 0, 1",
       [](World& w) {
         w.group({0, 1});
       }},
      {"world.split()", [](World& w) { w.split(0); }}};
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

// All are there, however long that took; from then on nobody waits for longer than `patience`.
void meet(World& world, milliseconds patience) {
  world.barrier();
  world.impl().set_patience(patience);
}

// Rank 0 comes much later than rank 1 and waits for other ranks: still nobody takes it for missing.
TEST(WorldCalls, WhoDoesNotComeIsNamedWithTheCall) {
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& ended = *new (shared) std::atomic<int>(0);
  const auto until_all_have_ended = [&] {
    while (ended < 3) std::this_thread::sleep_for(milliseconds(1));
  };
  on_workers(4, [&](World& world) {
    meet(world, milliseconds(4000));
    if (world.rank() == 2) return until_all_have_ended();
    if (world.rank() == 0) std::this_thread::sleep_for(milliseconds(300));
    try {
      world.barrier("after loading");
      ADD_FAILURE() << "without rank 2";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what())
                    .find("rank 2 has not come to world.barrier(\"after loading\"), which ranks "),
                std::string::npos)
          << error.what();
    }
    try {
      world.sum({1});
      ADD_FAILURE() << "after a call that failed";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("world.sum() of 1 value cannot be: a call before"),
                std::string::npos)
          << error.what();
    }
    ++ended;
    until_all_have_ended();  // the others hear of it from the call, not from one that has left
  });
  ::munmap(shared, sizeof(std::atomic<int>));
}

// Rank 2 is inside a task of its own, as in a step, which the others do not come to. What it waits
// for there comes when the others have been told, by their ends.
TEST(WorldCalls, TellWhatAMissingWorkerIsDoingAndWhatToDo) {
  // Nobody leaves before all have been told: shared by the processes.
  auto* const told = static_cast<std::atomic<int>*>(::mmap(nullptr, sizeof(std::atomic<int>),
                                                           PROT_READ | PROT_WRITE,
                                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(told), MAP_FAILED);
  on_workers(3, [told](World& world) {
    Workers::Calls& calls = world.calls();
    calls.advise("call it in step");
    meet(world, milliseconds(4000));
    std::string why;
    try {
      if (world.rank() == 2) {
        std::byte byte{};
        world.impl().courier().wait(calls.inside(
            "run.step()", calls.fabric().receive(Workers::Calls::kPartsChannel, 0,
                                                 message_of(std::span(&byte, 1)), kNever)));
      } else {
        const Workers::Calls::Scope outer(calls, "run.save_checkpoint()");
        const Workers::Calls::Scope inner(calls, "run.flush()");
        world.sum({1});
      }
      ADD_FAILURE() << "without the others";
    } catch (const IoError& error) {
      why = error.what();
    }
    for (++*told; *told < 3;) std::this_thread::yield();
    if (world.rank() == 2) return;
    for (const char* part : {"rank 2 has not come to run.save_checkpoint(), which rank",
                             "; rank 2 is in ", "run.step(); call it in step"})
      EXPECT_NE(why.find(part), std::string::npos) << why;
  });
}

TEST(WorldCalls, NameTheUsersCallAndNotItsParts) {
  in_both_ways(2, [](World& world) {
    const std::string mine = world.rank() == 0 ? "run.save()" : "run.evaluate()";
    const auto why = [&](const char* call, double values) {
      const Workers::Calls::Scope scope(world.calls(), call);
      try {
        world.sum(std::vector<double>(static_cast<std::size_t>(values)));
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_EQ(why(mine.c_str(), 1),
              "the workers made different calls: rank 0 called run.save(), rank 1 called "
              "run.evaluate(); expected the same of all");
    EXPECT_EQ(
        why("run.save()", 1 + world.rank()),
        "the workers made different calls: rank 0 called run.save() (world.sum() of 1 value), "
        "rank 1 called run.save() (world.sum() of 2 values); expected the same of all");
    const Workers::Calls::Scope call(world.calls(), "run.evaluate()");
    const Workers::Calls::Scope users_code(world.calls(), "");
    EXPECT_EQ(
        why(world.rank() == 0 ? "" : "run.save()", 1),
        "the workers made different calls: rank 0 called world.sum() of 1 value, rank 1 called "
        "run.save(); expected the same of all");
  });
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
        std::chrono::seconds(120), 1);
  }
}

// How main() ends on each of two workers, of which rank 1 throws `error`; rank 0 checks what it
// learns of that.
template <typename Exception>
std::vector<int> codes_of_run(const Exception& error, const std::vector<std::string>& told) {
  static int runs = 0;
  const std::string run_id = "world-run-" + std::to_string(::getpid()) + std::to_string(runs++);
  std::vector<pid_t> children;
  for (const char* rank : {"0", "1"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SKEIN_RANK", rank, 1);
      ::setenv("SKEIN_SIZE", "2", 1);
      ::setenv("SKEIN_RUN", run_id.c_str(), 1);
      const int code = World::run([&](World& world) {
        world.barrier();
        if (world.rank() == 1) throw error;
        std::string why;
        try {
          world.barrier("after the error");
        } catch (const IoError& lost) {
          why = lost.what();
        }
        for (const std::string& part : told) EXPECT_NE(why.find(part), std::string::npos) << why;
        EXPECT_EQ(why.find('\n'), std::string::npos) << why;
        EXPECT_LT(why.size(), 600u);
        if (testing::Test::HasFailure()) throw Error("rank 0 was not told");
      });
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return codes;
}

TEST(WorldRun, TellsTheOthersWhichExceptionEndedAWorker) {
  EXPECT_EQ(codes_of_run(std::logic_error("a bad batch"), {"rank 1", "a bad batch"}),
            (std::vector<int>{0, 1}));
  EXPECT_EQ(codes_of_run(ConfigError("no such file"), {"rank 1", "no such file"}),
            (std::vector<int>{0, 2}));
  EXPECT_EQ(codes_of_run(std::runtime_error("two\nlines " + std::string(5000, 'x')),
                         {"two lines xxx", "x…"}),
            (std::vector<int>{0, 1}));
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
                "the workers made different calls: rank 1 called group.sum() of 1 value, rank 3 "
                "called group.barrier(); expected the same of all");
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
