// Queues on a GPU: what was put there is done later, in order, and marks tell.
#include "core/clock.h"
#include "cuda/gpu.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {
namespace {

using CudaQueues = OnAGpu;

constexpr std::size_t kMany = std::size_t{1}
                              << 26;  // 256 MiB: a pass takes a tenth of a millisecond

TEST_F(CudaQueues, AMarkIsReachedWhenAllBeforeItIsDone) {
  const OnQueue scope(&queue());
  const auto x = queue().allocate(kMany, Type::f32);
  queue().finish();
  for (int i = 0; i < 200; ++i) axpy(x->span(), 0, x->span());
  const Mark mark = queue().record();
  EXPECT_FALSE(reached(mark)) << "the host waited for the device";
  queue().finish();
  EXPECT_TRUE(reached(mark));
}

TEST_F(CudaQueues, OneWaitsForTheMarkOfAnother) {
  const auto other = make_cuda_queue(0);
  const auto x = queue().allocate(kMany, Type::f32), y = queue().allocate(kMany, Type::f32);
  queue().finish();
  float last = 0;
  for (int round = 1; round <= 20; ++round) {
    {
      const OnQueue scope(&queue());
      for (int i = 0; i < 10; ++i) fill(x->span(), static_cast<float>(-i));
      fill(x->span(), static_cast<float>(round));
    }
    other->wait(queue().record());
    {
      const OnQueue scope(other.get());
      copy(y->span(), x->span());
      copy(Span{&last, 1}, y->span().at({kMany - 1, 1}));
    }
    queue().wait(other->record());
    other->finish();
    ASSERT_EQ(last, static_cast<float>(round));
  }
}

TEST_F(CudaQueues, AFigureIsThereWithItsMark) {
  const OnQueue scope(&queue());
  const auto x = queue().allocate(kMany, Type::f32);
  fill(x->span(), 0.5F);
  SteadyClock clock;
  Loop loop(clock);
  loop.use(&queue());
  double found = 0;
  const auto job = loop.spawn([](Loop& its, Span values, double& into) -> Task<> {
    into = co_await value_of(its, squared_norm(values));
  }(loop, x->span(), found));
  while (!job.done()) loop.run_turn([] { return false; });
  EXPECT_EQ(found, 0.25 * static_cast<double>(kMany));
}

TEST_F(CudaQueues, MemoryIsZeroedAndGoesInOrder) {
  const OnQueue scope(&queue());
  std::vector<float> seen(1000, 7);
  for (int round = 0; round < 100; ++round) {
    const auto x = queue().allocate(1 << 20, Type::f32);
    copy(Span{seen.data(), seen.size()}, x->span().at({(1 << 20) - seen.size(), seen.size()}));
    fill(x->span(), 3);
  }
  queue().finish();
  EXPECT_EQ(seen, std::vector<float>(1000, 0));
}

TEST_F(CudaQueues, SayWhatIsMissing) {
  EXPECT_THROW(
      {
        try {
          make_cuda_queue(99);
        } catch (const ConfigError& error) {
          EXPECT_NE(std::string(error.what()).find("cuda:99"), std::string::npos) << error.what();
          throw;
        }
      },
      ConfigError);
  EXPECT_THROW(
      {
        try {
          queue().allocate(std::size_t{1} << 44, Type::f32);
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
          throw;
        }
      },
      Error);
  // And the queue is as good as before.
  const OnQueue scope(&queue());
  const auto x = queue().allocate(10, Type::f32);
  fill(x->span(), 1);
  queue().finish();
}

}  // namespace
}  // namespace skein
