// The nccl fabric with NVIDIA's own NCCL, among processes on one GPU: what the conformance suite
// asks of it with a stand-in (conformance/nccl_test.cpp), on memory of a GPU. NCCL refuses ranks of
// one host that share a GPU, so each calls itself a host. This process never touches the GPU, since
// its children could not then.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "conformance/forked.h"
#include "core/rng.h"
#include "cuda/cuda.h"
#include "fabric/alone.h"
#include "fabric/local/local_fabric.h"
#include "fabric/nccl/library.h"
#include "fabric/nccl/nccl_fabric.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSizes[] = {0, 1, 17, 1000, 4096, 100003, 1 << 20, 6250000};

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

Deadline soon(Fabric& fabric) { return fabric.loop().now() + 600s; }

std::vector<Outcome> run_on_gpu(int size, const Body& body) {
  static int runs = 0;
  const std::string run_id =
      "cuda-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  const auto make = [&](Loop& loop, int rank) -> std::unique_ptr<Fabric> {
    ::setenv("NCCL_HOSTID", ("host" + std::to_string(rank)).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    static std::unique_ptr<Queue> queue;  // of the child, to its end
    queue = make_cuda_queue(0);
    loop.use(queue.get());
    if (size == 1) return std::make_unique<AloneFabric>(loop);
    return std::make_unique<NcclFabric>(
        std::make_unique<LocalFabric>(loop, LocalOptions{run_id, rank, size, 120s, {}}),
        *nccl::library().api, true);
  };
  return run_forked(size, body, make);
}

class CudaNccl : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is no /dev/nvidiactl";
    if (!nccl::library().api) GTEST_SKIP() << nccl::library().missing;
  }
  void run_all_ok(const Body& body) {
    const auto outcomes = run_on_gpu(GetParam(), body);
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      EXPECT_TRUE(outcomes[rank].ok) << "rank " << rank << ": " << outcomes[rank].error;
  }
};

// Small integers: sums are exact in any order.
float value(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 31) % 101);
}
float total(int size, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i);
  return sum;
}

void set(Span device, int rank) {
  const auto host = allocate_on_heap(device.count);
  const auto values = host->span().host();
  for (std::size_t i = 0; i < device.count; ++i) values[i] = value(rank, i);
  if (device.count > 0) copy(device, host->span());
  current_queue()->finish();
}

void draw(Span device, std::uint64_t seed) {
  const auto host = allocate_on_heap(device.count);
  Rng rng(seed);
  for (float& each : host->span().host()) each = static_cast<float>(rng.normal());
  copy(device, host->span());
  current_queue()->finish();
}

std::vector<float> values_of(Span device) {
  const auto host = allocate_on_heap(device.count);
  if (device.count > 0) copy(host->span(), device);
  current_queue()->finish();
  const auto values = host->span().host();
  return {values.begin(), values.end()};
}

TEST_P(CudaNccl, CollectivesOfEverySize) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto memory = fabric.allocate(count);
      const Span span = memory->span();
      const Range own = fabric.part(count, fabric.rank());
      set(span, fabric.rank());
      co_await fabric.reduce_scatter(0, span, soon(fabric));
      const auto part = values_of(span.at(own));
      for (std::size_t i = 0; i < own.count; ++i)
        require(part[i] == total(fabric.size(), own.offset + i), "reduce_scatter");
      co_await fabric.all_gather(0, span, soon(fabric));
      const auto gathered = values_of(span);
      for (std::size_t i = 0; i < count; ++i)
        require(gathered[i] == total(fabric.size(), i), "all_gather");
      set(span, fabric.rank());
      co_await fabric.all_reduce(1, span, soon(fabric));
      require(values_of(span) == gathered, "all_reduce");
      for (int root = 0; root < fabric.size(); ++root) {
        set(span, fabric.rank());
        co_await fabric.broadcast(2, span, root, soon(fabric));
        const auto given = values_of(span);
        for (std::size_t i = 0; i < count; ++i) require(given[i] == value(root, i), "broadcast");
      }
    }
  });
}

// What makes dear's models those of allreduce.
TEST_P(CudaNccl, AllReduceHasTheBitsOfReduceScatterAndAllGatherOnEveryRank) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : {std::size_t{50021}, std::size_t{64000}, std::size_t{3000016}})
      for (const Wire wire : {Wire::f32, Wire::bf16}) {
        const auto one = fabric.allocate(count), two = fabric.allocate(count),
                   zero = fabric.allocate(count);
        const auto seed = static_cast<std::uint64_t>(fabric.rank()) + 5;
        draw(one->span(), seed);
        draw(two->span(), seed);
        co_await fabric.all_reduce(0, one->span(), soon(fabric), wire);
        co_await fabric.reduce_scatter(0, two->span(), soon(fabric), wire);
        co_await fabric.all_gather(0, two->span(), soon(fabric), wire);
        const auto sum = values_of(one->span());
        require(sum == values_of(two->span()), "the bits differ");
        copy(zero->span(), one->span());
        co_await fabric.broadcast(0, zero->span(), 0, soon(fabric));
        require(sum == values_of(zero->span()), "the ranks differ");
      }
  });
}

// Bfloat16 on the wire has the bits that the local fabric has on the host: a value is rounded once.
TEST_P(CudaNccl, HalvesHaveTheBitsOfTheHost) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : {std::size_t{17}, std::size_t{4097}, std::size_t{300000}}) {
      const auto device = fabric.allocate(count), host = allocate_on_heap(count);
      Rng rng(static_cast<std::uint64_t>(fabric.rank()) + 9);
      for (float& each : host->span().host()) each = static_cast<float>(rng.normal());
      copy(device->span(), host->span());
      current_queue()->finish();
      co_await fabric.all_reduce(0, device->span(), soon(fabric), Wire::bf16);
      co_await fabric.all_reduce(0, host->span(), soon(fabric), Wire::bf16);
      require(std::ranges::equal(values_of(device->span()), host->span().host()), "other bits");
    }
  });
}

TEST_P(CudaNccl, RanksThatStartInOtherOrdersLaunchInOne) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    Rng rng(static_cast<std::uint64_t>(fabric.rank()) + 1);
    const int peer = fabric.rank() ^ 1;
    std::vector<std::unique_ptr<Memory>> buffers;
    for (std::size_t channel = 0; channel < 6; ++channel)
      buffers.push_back(fabric.allocate(channel % 2 == 0 ? 1000000 : 1000));
    const auto out = fabric.allocate(500000), into = fabric.allocate(500000);
    for (int round = 1; round <= 20; ++round) {
      std::vector<Task<>> tasks;
      fill(out->span(), static_cast<float>(100 * round + fabric.rank()));
      for (const std::uint32_t channel : rng.permutation(7)) {
        if (channel == 6) {
          if (peer < fabric.size())
            tasks.push_back(fabric.exchange(8, peer, out->span(), into->span(), soon(fabric)));
          continue;
        }
        const Span span = buffers[channel]->span();
        fill(span, static_cast<float>(channel + 1));
        tasks.push_back(fabric.all_reduce(static_cast<int>(channel), span, soon(fabric)));
      }
      co_await all_of(fabric.loop(), std::move(tasks));
      fill(out->span(), -1);
      for (std::size_t channel = 0; channel < 6; ++channel)
        for (const float each : values_of(buffers[channel]->span()))
          require(each == static_cast<float>(channel + 1) * static_cast<float>(fabric.size()),
                  "a wrong sum");
      if (peer < fabric.size())
        for (const float each : values_of(into->span()))
          require(each == static_cast<float>(100 * round + peer), "another's values");
    }
  });
}

// One dies between two sums: the others hear of it, long before the deadline, and their
// device is not stuck.
TEST_P(CudaNccl, ADeadPeerLeavesNobodyWaiting) {
  if (GetParam() == 1) GTEST_SKIP() << "one worker has no peers";
  const auto outcomes = run_on_gpu(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(3000000);
    Time last{};
    for (int round = 0;; ++round) {
      if (fabric.rank() == 1 && round == 5) ::kill(::getpid(), SIGKILL);
      fill(memory->span(), 1);
      try {
        last = fabric.loop().now();
        co_await fabric.all_reduce(0, memory->span(), soon(fabric));
        co_await until_reached(fabric.loop(), current_queue()->record());
      } catch (const IoError&) {
        current_queue()->finish();
        require(fabric.loop().now() - last < 100s, "noticed too late");
        throw;
      }
    }
  });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (rank == 1)
      EXPECT_EQ(outcomes[rank].signal, SIGKILL);
    else
      EXPECT_TRUE(outcomes[rank].io_error) << "rank " << rank << ": " << outcomes[rank].error;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaNccl, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace skein::conformance
