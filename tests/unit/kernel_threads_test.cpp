#include "kernels/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

namespace skein {
namespace {

// As many threads as said, for one scope.
class Threads {
 public:
  explicit Threads(int count) { set_kernel_threads(count); }
  ~Threads() { set_kernel_threads(1); }
};

using Vectors = std::vector<std::unique_ptr<Memory>>;

// Neither a whole number of pieces nor of cache lines.
constexpr std::size_t kCount = 2 * kThreadPiece + 37;

Vectors make_vectors() {
  Vectors vectors;
  for (std::uint32_t k = 0; k < 4; ++k) {
    vectors.push_back(allocate_on_heap(kCount));
    std::uint32_t word = k + 1;
    for (float& value : vectors.back()->span().host()) {
      word = word * 1664525U + 1013904223U;
      value = static_cast<float>(word >> 8) * 0x1p-24F - (k == 3 ? 0 : 0.5F);  // the last: squares
    }
  }
  return vectors;
}

struct Case {
  const char* name;
  std::function<double(const std::vector<Span>&)> run;
};

std::vector<Case> cases() {
  const auto none = [](auto run) {
    return [run](const std::vector<Span>& v) {
      run(v);
      return 0.0;
    };
  };
  using V = const std::vector<Span>&;
  const SgdFactors sgd{.learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F};
  SgdFactors nesterov = sgd;
  nesterov.nesterov = true;
  const AdamwFactors adamw{.decay = 0.99F,
                           .beta1 = 0.9F,
                           .one_minus_beta1 = 0.1F,
                           .beta2 = 0.99F,
                           .one_minus_beta2 = 0.01F,
                           .epsilon = 1e-8F,
                           .step_size = 0.1F};
  const auto packed = [](V v) { return Span{v[1].data, kCount, Device::cpu, Type::bf16}; };
  return {
      {"copy", none([](V v) { copy(v[0], v[1]); })},
      {"fill", none([](V v) { fill(v[0], 3); })},
      {"fill with 0", none([](V v) { fill(v[0], 0); })},
      {"scale", none([](V v) { scale(v[0], 0.3F); })},
      {"add", none([](V v) { add(v[0], v[1]); })},
      {"axpy", none([](V v) { axpy(v[0], 0.3F, v[1]); })},
      {"add_difference", none([](V v) { add_difference(v[0], v[1], v[2]); })},
      {"copy_to_both", none([](V v) { copy_to_both(v[0], v[1], v[2]); })},
      {"copy_scaled", none([](V v) { copy_scaled(v[0], 0.3F, v[1]); })},
      {"move_by_mean", [](V v) { return move_by_mean(v[0], 0.3F, v[1], v[2]); }},
      {"become_mean", [](V v) { return become_mean(v[0], 0.3F, v[1]); }},
      {"mix", none([](V v) { mix(v[0], v[1], 0.7F, 0.3F); })},
      {"sum", none([](V v) {
         const std::vector<const float*> sources{v[1].host().data(), v[2].host().data(),
                                                 v[3].host().data()};
         sum(v[0], sources);
       })},
      {"sum, dst among the sources", none([](V v) {
         const std::vector<const float*> sources{v[1].host().data(), v[0].host().data(),
                                                 v[2].host().data()};
         sum(v[0], sources);
       })},
      {"squared_norm", [](V v) { return squared_norm(v[0]); }},
      {"squared_distance", [](V v) { return squared_distance(v[0], v[1]); }},
      {"sgd", none([=](V v) { sgd_update(v[0], v[1], sgd); })},
      {"sgd with momentum", none([=](V v) { sgd_update(v[0], v[1], v[2], sgd); })},
      {"sgd with Nesterov's", none([=](V v) { sgd_update(v[0], v[1], v[2], nesterov); })},
      {"adamw", none([=](V v) { adamw_update(v[0], v[1], v[2], v[3], adamw); })},
      {"to_bf16", none([=](V v) { to_bf16(packed(v), v[0]); })},
      {"from_bf16", none([=](V v) { from_bf16(v[0], packed(v)); })},
      {"add_bf16", none([=](V v) { add_bf16(v[0], packed(v)); })},
      {"round_to_bf16", none([](V v) { round_to_bf16(v[0]); })},
      {"restore_rounded", none([](V v) {
         copy(v[0], v[1]);
         round_to_bf16(v[0]);
         restore_rounded(v[0], v[1]);
       })},
  };
}

TEST(KernelThreads, EveryKernelGivesTheSameBitsOnHoweverManyThreads) {
  for (const Case& each : cases()) {
    const Vectors one = make_vectors();
    std::vector<Span> expected;
    for (const auto& vector : one) expected.push_back(vector->span());
    const double number = each.run(expected);
    const Threads threads(3);
    const Vectors several = make_vectors();
    std::vector<Span> spans;
    for (const auto& vector : several) spans.push_back(vector->span());
    EXPECT_EQ(each.run(spans), number) << each.name;
    for (std::size_t k = 0; k < spans.size(); ++k)
      EXPECT_EQ(std::memcmp(spans[k].data, expected[k].data, spans[k].bytes()), 0)
          << each.name << ", vector " << k;
  }
}

TEST(KernelThreads, APassCoversEveryElementOnceInWholeCacheLines) {
  const Threads threads(3);
  for (const bool in_cache : {false, true})
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{5}, kThreadPiece, kThreadPiece + 1, kCount}) {
      std::mutex mutex;
      std::map<std::size_t, std::size_t> parts;
      const auto work = [&](Range part) {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(parts.emplace(part.offset, part.count).second);
        EXPECT_LE(part.count, in_cache ? kCachePiece : kThreadPiece);
      };
      if (in_cache)
        in_one_pass({nullptr, count, Device::cpu}, work);
      else
        parallel(count, work);
      std::size_t end = 0;
      for (const auto& [offset, length] : parts) {
        EXPECT_EQ(offset, end);
        EXPECT_EQ(offset % 16, 0u);
        end = offset + length;
      }
      EXPECT_EQ(end, count);
    }
}

// Each of the pieces waits for the other: alone, a thread would never end.
TEST(KernelThreads, PiecesRunAtTheSameTime) {
  const Threads threads(2);
  std::latch both(2);
  for_pieces(2, [&](std::size_t) { both.arrive_and_wait(); });
}

TEST(KernelThreads, PassesOfTwoThreadsDoNotMixNorWaitForEachOther) {
  const Threads threads(2);
  std::atomic<bool> inner_done{false};
  for_pieces(2, [&](std::size_t piece) {
    if (piece != 0) return;
    std::thread([&] {
      std::atomic<int> made{0};
      for_pieces(40, [&](std::size_t) { ++made; });
      EXPECT_EQ(made, 40);
      inner_done = true;
    }).join();  // while this pass has the threads
  });
  EXPECT_TRUE(inner_done);
}

TEST(KernelThreads, AForkedProcessHasThreadsOfItsOwn) {
  const Threads threads(2);
  std::atomic<int> warm{0};
  for_pieces(4, [&](std::size_t) { ++warm; });
  const pid_t child = fork();
  if (child == 0) {
    alarm(600);
    std::atomic<int> made{0};
    for_pieces(50, [&](std::size_t) { ++made; });  // with threads that stayed behind
    set_kernel_threads(2);
    std::latch both(2);
    for_pieces(2, [&](std::size_t) { both.arrive_and_wait(); });
    _exit(made == 50 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(KernelThreads, WorkersOfOneHostShareItsCores) {
  const int cores = share_of_cores(1);
  EXPECT_GE(cores, 1);
  EXPECT_EQ(share_of_cores(cores), 1);
  EXPECT_EQ(share_of_cores(10 * cores), 1);
}

TEST(KernelThreads, NormsOfLongVectorsAreAddedPieceByPiece) {
  const Vectors vectors = make_vectors();
  const Span x = vectors[0]->span();
  double expected = 0;
  for (std::size_t at = 0; at < x.count; at += kThreadPiece)
    expected += squared_norm(x.at({at, std::min(kThreadPiece, x.count - at)}));
  EXPECT_EQ(squared_norm(x), expected);
}

}  // namespace
}  // namespace skein
