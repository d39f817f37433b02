// The local fabric among processes on one GPU: what it does there has the bits of what it does in
// memory of the host. Forked processes: this one never touches the GPU, since its children could
// not then.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "conformance/forked.h"
#include "core/rng.h"
#include "cuda/cuda.h"
#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

std::vector<Outcome> run_on_gpu(int size, const Body& body) {
  static int runs = 0;
  const std::string run_id = "cuda-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  const auto make = [&](Loop& loop, int rank) {
    static std::unique_ptr<Queue> queue;  // of the child, to its end
    queue = make_cuda_queue(0);
    loop.use(queue.get());
    return std::make_unique<LocalFabric>(loop, LocalOptions{run_id, rank, size, 120s, {}});
  };
  return run_forked(size, body, make);
}

void expect_all_ok(const std::vector<Outcome>& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_TRUE(outcomes[rank].ok) << "rank " << rank << ": " << outcomes[rank].error;
}

class CudaFabric : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is no /dev/nvidiactl";
  }
};

Deadline soon(Fabric& fabric) { return fabric.loop().now() + 120s; }

void draw(Span values, std::uint64_t seed) {
  Rng rng(seed);
  for (float& value : values.host()) value = static_cast<float>(rng.normal());
}

// Both hold the same; throws unless they do.
void compare(Queue& queue, Span device, Span host, const std::string& what) {
  const auto back = allocate_on_heap(device.count);
  copy(back->span(), device);
  queue.finish();
  if (device.count == 0) return;
  require(std::memcmp(back->span().data, host.data, host.bytes()) == 0, what + ": other bits");
}

Task<> collectives(Fabric& fabric) {
  Queue& queue = *fabric.loop().queue();
  require(fabric.why_staged().empty(), "not directly: " + fabric.why_staged());
  for (const std::size_t count : {1UL, 100UL, 1024UL, 4097UL, 300000UL, 6250000UL})
    for (const Wire wire : {Wire::f32, Wire::bf16}) {
      const auto device = fabric.allocate(count), host = allocate_on_heap(count);
      const auto restart = [&](std::uint64_t seed) {
        draw(host->span(), 10 * seed + static_cast<std::uint64_t>(fabric.rank()));
        copy(device->span(), host->span());
      };
      const std::string size = " of " + std::to_string(count);
      restart(1);
      co_await fabric.all_reduce(0, device->span(), soon(fabric), wire);
      co_await fabric.all_reduce(0, host->span(), soon(fabric), wire);
      compare(queue, device->span(), host->span(), "all_reduce" + size);
      restart(2);
      const Range own = fabric.part(count, fabric.rank());
      co_await fabric.reduce_scatter(0, device->span(), soon(fabric), wire);
      co_await fabric.reduce_scatter(0, host->span(), soon(fabric), wire);
      compare(queue, device->span().at(own), host->span().at(own), "reduce_scatter" + size);
      co_await fabric.all_gather(0, device->span(), soon(fabric), wire);
      co_await fabric.all_gather(0, host->span(), soon(fabric), wire);
      compare(queue, device->span(), host->span(), "all_gather" + size);
      restart(3);
      const int root = fabric.size() - 1;
      co_await fabric.broadcast(0, device->span(), root, soon(fabric));
      co_await fabric.broadcast(0, host->span(), root, soon(fabric));
      compare(queue, device->span(), host->span(), "broadcast" + size);
    }
}

TEST_P(CudaFabric, CollectivesHaveTheBitsOfTheHost) {
  expect_all_ok(run_on_gpu(GetParam(), collectives));
}

Task<> exchanges(Fabric& fabric) {
  Queue& queue = *fabric.loop().queue();
  const int peer = fabric.rank() ^ 1;
  if (peer >= fabric.size()) co_return;
  for (int round = 0; round < 30; ++round) {
    const std::size_t count = round % 3 == 0 ? 1000 : 2000000;
    const auto out = fabric.allocate(count), in = fabric.allocate(count);
    fill(out->span(), static_cast<float>(100 * round + fabric.rank()));
    co_await fabric.exchange(1, peer, out->span(), in->span(), soon(fabric));
    fill(out->span(), -1);  // the peer has it, or will
    const auto expected = allocate_on_heap(count);
    fill(expected->span(), static_cast<float>(100 * round + peer));
    compare(queue, in->span(), expected->span(), "exchange " + std::to_string(round));
  }
}

TEST_P(CudaFabric, PartnersExchangeWhatTheyHad) {
  expect_all_ok(run_on_gpu(GetParam(), exchanges));
}

// Many operations on several channels, none waited for by the device's host.
Task<> overlapping(Fabric& fabric) {
  Queue& queue = *fabric.loop().queue();
  std::vector<std::unique_ptr<Memory>> all;
  for (int channel = 0; channel < 4; ++channel) all.push_back(fabric.allocate(1000000));
  for (int round = 1; round <= 20; ++round) {
    std::vector<Task<>> tasks;
    for (int channel = 0; channel < 4; ++channel) {
      const Span span = all[static_cast<std::size_t>(channel)]->span();
      fill(span, static_cast<float>(round * (channel + 1)));
      tasks.push_back(fabric.all_reduce(channel, span, soon(fabric)));
    }
    co_await all_of(fabric.loop(), std::move(tasks));
  }
  for (int channel = 0; channel < 4; ++channel) {
    const auto expected = allocate_on_heap(1000000);
    fill(expected->span(), static_cast<float>(20 * (channel + 1) * fabric.size()));
    compare(queue, all[static_cast<std::size_t>(channel)]->span(), expected->span(), "a sum");
  }
}

TEST_P(CudaFabric, ChannelsGoTheirOwnWays) { expect_all_ok(run_on_gpu(GetParam(), overlapping)); }

// One dies in the middle: the others hear of it, and their device is not stuck.
TEST_P(CudaFabric, ADeadPeerLeavesNobodyWaiting) {
  if (GetParam() == 1) GTEST_SKIP() << "one worker has no peers";
  const auto outcomes = run_on_gpu(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(3000000);
    for (int round = 0;; ++round) {
      if (fabric.rank() == 0 && round == 5) ::kill(::getpid(), SIGKILL);
      fill(memory->span(), 1);
      try {
        co_await fabric.all_reduce(0, memory->span(), soon(fabric));
      } catch (const IoError& error) {
        fabric.loop().queue()->finish();
        throw;
      }
    }
  });
  for (std::size_t rank = 1; rank < outcomes.size(); ++rank)
    EXPECT_TRUE(outcomes[rank].io_error) << "rank " << rank << ": " << outcomes[rank].error;
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaFabric, testing::Values(1, 2, 3, 4, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace skein::conformance
