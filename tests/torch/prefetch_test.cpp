#include "data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "skein/error.h"

namespace skein {
namespace {

// Sample i is the number i. Notes who loaded what; can be held up; has no sample 99.
class Numbers : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  std::vector<std::int64_t> sample_shape() const override { return {1}; }
  std::int64_t classes() const override { return 1; }

  Batch get(std::span<const std::uint32_t> indices) const override {
    ++begun;
    if (gate.valid()) gate.wait();
    const std::vector<std::int64_t> values(indices.begin(), indices.end());
    {
      std::lock_guard lock(mutex);
      loads.push_back({values, std::this_thread::get_id()});
    }
    for (const std::int64_t value : values)
      if (value == 99) throw ConfigError("sample 99 is corrupt");
    const auto tensor = torch::tensor(values, torch::kInt64);
    return {tensor, torch::zeros_like(tensor)};
  }

  void wait_for_loads(std::size_t count) const {
    const auto loaded = [&] {
      std::lock_guard lock(mutex);
      return loads.size();
    };
    while (loaded() < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  struct Load {
    std::vector<std::int64_t> values;
    std::thread::id thread;
  };
  std::shared_future<void> gate;
  mutable std::atomic<int> begun{0};
  mutable std::mutex mutex;
  mutable std::vector<Load> loads;
};

using Indices = std::vector<std::uint32_t>;

TEST(Prefetch, LoadsTheRequestOnItsThreadOnce) {
  const auto numbers = std::make_shared<Numbers>();
  Prefetcher prefetcher(numbers);
  for (std::uint32_t i = 0; i < 20; ++i) {
    prefetcher.request({i, i + 1});
    numbers->wait_for_loads(i + 1);
    const Batch batch = prefetcher.take(Indices{i, i + 1});
    EXPECT_EQ(batch.data[1].item<std::int64_t>(), i + 1);
  }
  ASSERT_EQ(numbers->loads.size(), 20u);
  for (const auto& load : numbers->loads) {
    EXPECT_NE(load.thread, std::this_thread::get_id());
    EXPECT_EQ(load.thread, numbers->loads[0].thread);
  }
}

TEST(Prefetch, LoadsInPlaceWhatWasNotRequested) {
  const auto numbers = std::make_shared<Numbers>();
  Prefetcher prefetcher(numbers);
  EXPECT_EQ(prefetcher.take(Indices{5}).data.item<std::int64_t>(), 5);
  prefetcher.request({1, 2});
  EXPECT_EQ(prefetcher.take(Indices{2, 1}).data[0].item<std::int64_t>(), 2);
  // The request is still good.
  EXPECT_EQ(prefetcher.take(Indices{1, 2}).data[0].item<std::int64_t>(), 1);
  // And was taken: this is a new load.
  EXPECT_EQ(prefetcher.take(Indices{1, 2}).data[0].item<std::int64_t>(), 1);
  EXPECT_EQ(numbers->loads.size(), 4u);
}

TEST(Prefetch, ALaterRequestReplacesAnEarlierOne) {
  const auto numbers = std::make_shared<Numbers>();
  std::promise<void> open;
  numbers->gate = open.get_future().share();
  Prefetcher prefetcher(numbers);
  prefetcher.request({1});
  while (numbers->begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  prefetcher.request({2});
  prefetcher.request({3});
  open.set_value();
  EXPECT_EQ(prefetcher.take(Indices{3}).data.item<std::int64_t>(), 3);
}

TEST(Prefetch, ErrorsOfTheThreadSurfaceInTake) {
  const auto numbers = std::make_shared<Numbers>();
  Prefetcher prefetcher(numbers);
  prefetcher.request({1, 99});
  numbers->wait_for_loads(1);
  EXPECT_THROW(prefetcher.take(Indices{1, 99}), ConfigError);
  EXPECT_NE(numbers->loads.at(0).thread, std::this_thread::get_id());
  // It goes on after that.
  prefetcher.request({4});
  EXPECT_EQ(prefetcher.take(Indices{4}).data.item<std::int64_t>(), 4);
}

TEST(Prefetch, EndsWithARequestPending) {
  for (int i = 0; i < 50; ++i) {  // one that did not would be waited for in vain
    Prefetcher prefetcher(std::make_shared<Numbers>());
    prefetcher.request({99});
  }
}

}  // namespace
}  // namespace skein
