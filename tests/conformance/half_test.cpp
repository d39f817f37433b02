// Collectives in bfloat16 on every fabric, on 1, 2, 3, 4 and 8 ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/harness.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

// Odd ones, and ones that leave ranks without a shard.
constexpr std::size_t kSizes[] = {0, 1, 2, 15, 16, 17, 33, 1000, 4097, 100003};

Deadline soon(Fabric& fabric) { return fabric.loop().now() + 120s; }

// Of either sign and of sizes from 2^-7 to 2^6, with all bits in use.
float value(int rank, std::size_t i) {
  const std::size_t mixed = (i * 31 + static_cast<std::size_t>(rank)) * 2654435761U % 4294967296U;
  const double part = static_cast<double>(mixed) / 4294967296.0 * 2 - 1;
  return static_cast<float>(std::ldexp(part, static_cast<int>(mixed % 13) - 6));
}

void set(Span span, int rank) {
  const auto all_of = floats_of(span);
  for (std::size_t i = 0; i < span.count; ++i) all_of[i] = value(rank, i);
}

void expect_same_bits(Span got, Span want, const char* what) {
  const auto all_got = floats_of(got);
  const auto all_want = floats_of(want);
  for (std::size_t i = 0; i < got.count; ++i)
    if (all_got[i] != all_want[i])
      throw Error(std::string(what) + " differs at " + std::to_string(i));
}

Task<> compare_with_rank_0(Fabric& fabric, Span mine) {
  const auto memory = allocate_on_heap(mine.count);
  std::ranges::copy(floats_of(mine), floats_of(memory->span()).begin());
  co_await fabric.broadcast(9, memory->span(), 0, soon(fabric));
  expect_same_bits(mine, memory->span(), "a rank");
}

class Half : public testing::TestWithParam<std::tuple<World, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  std::vector<Outcome> run(const Body& body) { return std::get<0>(GetParam()).run(size(), body); }
  void run_all_ok(const Body& body) {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

class HalfOfPeers : public Half {};

// Each value is rounded once, whatever the number of ranks, and added in float32.
TEST_P(Half, ReduceScatterKeepsTheBound) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto buffer = fabric.allocate(count);
      set(buffer->span(), fabric.rank());
      co_await fabric.reduce_scatter(0, buffer->span(), soon(fabric), Wire::bf16);
      const Range own = fabric.part(count, fabric.rank());
      bool rounded = false;
      const auto all_buffer = floats_of(buffer->span());
      for (std::size_t i = own.offset; i < own.end(); ++i) {
        double sum = 0, sizes = 0;
        for (int r = 0; r < fabric.size(); ++r) {
          sum += static_cast<double>(value(r, i));
          sizes += std::abs(static_cast<double>(value(r, i)));
        }
        const double error = std::abs(static_cast<double>(all_buffer[i]) - sum);
        if (error > sizes * (std::ldexp(1, -8) + fabric.size() * std::ldexp(1, -24)))
          throw Error("off by " + std::to_string(error) + " at " + std::to_string(i));
        rounded |= error > sizes * std::ldexp(1, -14);
      }
      if (own.count >= 100 && rounded != (fabric.size() > 1)) throw Error("nothing was rounded");
    }
  });
}

TEST_P(Half, AllGatherGivesEverybodyTheRoundedShardsTheOwnerToo) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto own = fabric.allocate(count), other = allocate_on_heap(count),
                 want = allocate_on_heap(count);
      for (int r = 0; r < fabric.size(); ++r) {
        const Range part = fabric.part(count, r);
        const auto all_want = floats_of(want->span());
        for (std::size_t i = part.offset; i < part.end(); ++i) all_want[i] = value(r, i);
      }
      if (fabric.size() > 1) round_to_bf16(want->span());
      for (const Span buffer : {own->span(), other->span()}) {
        set(buffer, fabric.rank());
        co_await fabric.all_gather(0, buffer, soon(fabric), Wire::bf16);
        expect_same_bits(buffer, want->span(), "the gathered");
      }
    }
  });
}

TEST_P(Half, AllReduceIsBothOnTheSameTurn) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto one = fabric.allocate(count), two = fabric.allocate(count);
      set(one->span(), fabric.rank());
      set(two->span(), fabric.rank());
      co_await fabric.all_reduce(0, one->span(), soon(fabric), Wire::bf16);
      co_await fabric.reduce_scatter(0, two->span(), soon(fabric), Wire::bf16);
      co_await fabric.all_gather(0, two->span(), soon(fabric), Wire::bf16);
      expect_same_bits(one->span(), two->span(), "the sum");
      co_await compare_with_rank_0(fabric, one->span());
    }
  });
}

TEST_P(Half, TheSumDoesNotDependOnWhoComesFirst) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const std::size_t count = 5003;
    const auto first = fabric.allocate(count), again = fabric.allocate(count);
    for (const bool forwards : {true, false}) {
      const int late = forwards ? fabric.rank() : fabric.size() - fabric.rank();
      co_await fabric.loop().sleep_for(late * 2ms);
      const Span buffer = forwards ? first->span() : again->span();
      set(buffer, fabric.rank());
      co_await fabric.all_reduce(0, buffer, soon(fabric), Wire::bf16);
    }
    expect_same_bits(first->span(), again->span(), "the second");
  });
}

TEST_P(Half, ManyInFlightAmongOthers) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    constexpr int kOperations = 24;
    std::vector<std::unique_ptr<Memory>> buffers;
    std::vector<Task<>> tasks;
    for (int k = 0; k < kOperations; ++k) {
      buffers.push_back(fabric.allocate(3001 + 64 * static_cast<std::size_t>(k)));
      fill(buffers.back()->span(), static_cast<float>(fabric.rank() + k));
    }
    for (int c = 0; c < 4; ++c)  // each rank starts the channels in another order
      for (int k = (c + fabric.rank()) % 4; k < kOperations; k += 4)
        tasks.push_back(fabric.all_reduce(k % 4, buffers[static_cast<std::size_t>(k)]->span(),
                                          soon(fabric), k % 3 == 0 ? Wire::f32 : Wire::bf16));
    co_await all_of(fabric.loop(), std::move(tasks));
    for (int k = 0; k < kOperations; ++k) {
      // Small integers: exact in bfloat16 up to 256.
      const int want = fabric.size() * k + fabric.size() * (fabric.size() - 1) / 2;
      for (const float got : floats_of(buffers[static_cast<std::size_t>(k)]->span()))
        if (got != static_cast<float>(want)) throw Error("wrong sum " + std::to_string(got));
    }
  });
}

// In two levels that is so of what goes between hosts.
TEST_P(Half, BytesSentAreHalfThoseOfARing) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const std::size_t count = 16000 * static_cast<std::size_t>(fabric.size());
    const auto buffer = fabric.allocate(count);
    const std::uint64_t before = fabric.bytes_sent();
    co_await fabric.reduce_scatter(0, buffer->span(), soon(fabric), Wire::bf16);
    co_await fabric.all_gather(0, buffer->span(), soon(fabric), Wire::bf16);
    const std::uint64_t sent = fabric.bytes_sent() - before;
    const auto each = static_cast<std::size_t>(workers_of_a_host(fabric));
    const std::size_t hosts = static_cast<std::size_t>(fabric.size()) / each;
    const std::size_t want = 2 * 16000 * (2 * (hosts - 1) + 4 * hosts * (each - 1));
    if (sent != want) throw Error("sent " + std::to_string(sent));
  });
}

TEST_P(HalfOfPeers, ADeadlineEndsTheWaitAndNamesThePeer) {
  const auto outcomes = run([](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(10000);
    float told = 1;
    if (fabric.rank() == 1) {  // alive, but it does not take part
      for (int peer = 0; peer < fabric.size(); ++peer) {
        try {
          if (peer != 1) co_await fabric.receive(2, peer, {&told, 1}, soon(fabric));
        } catch (const IoError&) {  // it has ended
        }
      }
      co_return;
    }
    std::exception_ptr late;
    try {
      const Deadline deadline = fabric.loop().now() + 200ms;
      co_await fabric.reduce_scatter(0, buffer->span(), deadline, Wire::bf16);
    } catch (const IoError&) {
      late = std::current_exception();
    }
    try {
      co_await fabric.send(2, 1, {&told, 1}, soon(fabric));
    } catch (const IoError&) {  // another has told it
    }
    if (late) std::rethrow_exception(late);
  });
  for (int r = 0; r < size(); ++r) {
    if (r == 1) continue;
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(r)].io_error)
        << outcomes[static_cast<std::size_t>(r)].error;
    EXPECT_GE(outcomes[static_cast<std::size_t>(r)].peer, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Half,
                         testing::Combine(testing::ValuesIn(worlds()),
                                          testing::Values(1, 2, 3, 4, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Fabrics, HalfOfPeers,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, Half,
                         testing::Combine(testing::ValuesIn(nccl_worlds()), testing::Values(2, 4)),
                         name_of);

}  // namespace
}  // namespace skein::conformance
