// A loop over a dataset that all workers share: see Distributed::share().
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "skein/error.h"

namespace skein {

// How Distributed::share() hands out a dataset. The same on all workers.
struct ShareOptions {
  std::int64_t batch = 32;  // samples of one worker in a step
  std::int64_t epochs = 1;  // how often each sample comes
  std::uint64_t seed = 0;   // of the order of samples
  bool shuffle = true;      // a new order in every epoch of the run
  int prefetch = 2;  // batches that a thread loads ahead; 0: each is loaded by the loop itself

  // The number in the run, from 0, of the loop's first epoch. For a program that begins a resumed
  // run with a later one: `for (auto epoch = resumed.number("epoch"); …)`. Without it a loop goes
  // on from where the one before it ended, and the first begins with epoch 0.
  std::optional<std::int64_t> first_epoch = {};

  // True: a loop that evaluates, in the body of Distributed::evaluate(). Over all workers every
  // sample comes once, in the dataset's order whatever `shuffle` says; nothing is trained, counted
  // or passed over by resume().
  bool evaluate = false;
};

// What the loop knows of a batch besides its contents.
struct SharedFacts {
  std::vector<std::size_t> indices;  // its samples' numbers in the dataset
  std::int64_t size = 0;             // how many they are
  std::int64_t epoch = 0;            // of the run, from 0
};

// A batch of the loop: what the dataset gave, or `data` and `target` where that is an Example.
template <typename Value>
struct Shared : SharedFacts {
  Value value;  // what the dataset gave

  // Internal: puts it there.
  void take(Value&& made) { value = std::move(made); }
};

// The same for examples, whose `data` and `target` it has.
template <typename Data, typename Target>
struct Shared<torch::data::Example<Data, Target>> : SharedFacts,
                                                    torch::data::Example<Data, Target> {
  // Internal: puts it there.
  void take(torch::data::Example<Data, Target>&& made) {
    static_cast<torch::data::Example<Data, Target>&>(*this) = std::move(made);
  }
};

// The same where only the samples' numbers are shared.
template <>
struct Shared<void> : SharedFacts {};

class Distributed;

// Hands out batches, whatever they are made of: what SharedRange is written on.
class ShareLoop {
 public:
  // Makes a batch of these samples.
  using Load = std::function<std::shared_ptr<void>(const std::vector<std::size_t>& indices)>;

  // Without `load` there are only indices.
  ShareLoop(Distributed& run, std::int64_t dataset_size, const ShareOptions& options, Load load);
  ShareLoop(const ShareLoop&) = delete;
  ShareLoop& operator=(const ShareLoop&) = delete;
  ~ShareLoop();  // ends the loop, unless an exception is on its way

  class Impl;

  // The next batch of this worker, with what `load` made of it. False at the end.
  bool next(SharedFacts& facts, std::shared_ptr<void>& value);

 private:
  std::unique_ptr<Impl> impl_;
};

// For one range-based for loop: `for (auto& batch : run.share(…))`.
template <typename Value>
class SharedRange {
 public:
  // Internal: for Distributed::share().
  explicit SharedRange(std::unique_ptr<ShareLoop> loop) : loop_(std::move(loop)) {}

  // At one batch.
  class Iterator {
   public:
    // Internal: for the range.
    explicit Iterator(SharedRange& range) : range_(range) {}
    Shared<Value>& operator*() const { return *range_.batch_; }    // the batch
    Shared<Value>* operator->() const { return &*range_.batch_; }  // the batch
    Iterator& operator++() { return range_.advance(), *this; }     // to the next one
    // Whether all are over.
    bool operator==(std::default_sentinel_t) const { return !range_.batch_; }

   private:
    SharedRange& range_;
  };

  Iterator begin() { return advance(), Iterator(*this); }  // at the first batch; once
  std::default_sentinel_t end() const { return {}; }       // of all batches

 private:
  void advance() {
    batch_.reset();
    Shared<Value> batch;
    std::shared_ptr<void> value;
    if (!loop_->next(batch, value)) return;
    if constexpr (!std::is_void_v<Value>)
      batch.take(std::move(*std::static_pointer_cast<Value>(value)));
    batch_ = std::move(batch);
  }

  std::unique_ptr<ShareLoop> loop_;
  std::optional<Shared<Value>> batch_;
};

namespace detail {

// Internal: as torch's datasets take them.
using SampleNumbers = torch::ArrayRef<std::size_t>;

template <typename T>
concept GivesBatches = requires(T& set, SampleNumbers numbers) {
  set.get_batch(numbers);
};
template <typename T>
concept GivesSamples = requires(T& set) {
  set.get(std::size_t{0});
};
template <typename T>
concept IsDataset = requires(const T& set) {
  set.size();
}
&&(GivesBatches<T> || GivesSamples<T>);
template <typename T>
concept IsLoader = requires(T& loader) {
  loader->begin();
  loader->join();
};

template <typename T>
concept IsOwnDataset = IsDataset<T> && !std::is_reference_v<T>;
template <typename T>
concept MakesBatches = requires(T& load, const std::vector<std::size_t>& indices) {
  load(indices);
};

// Internal: what size() says.
template <typename Size>
std::int64_t known_size(const Size& size) {
  if constexpr (std::is_integral_v<Size>) {
    return static_cast<std::int64_t>(size);
  } else {
    if (!size.has_value())
      throw ConfigError("share(): the dataset does not say how many samples it has");
    return static_cast<std::int64_t>(*size);
  }
}

// Internal: what the dataset makes of a batch. Single examples of tensors are stacked.
template <typename Dataset>
auto batch_of(Dataset& set, const std::vector<std::size_t>& indices) {
  const auto all = [&] {
    if constexpr (GivesBatches<Dataset>) {
      return set.get_batch(SampleNumbers(indices));
    } else {
      std::vector<std::decay_t<decltype(set.get(std::size_t{0}))>> samples;
      samples.reserve(indices.size());
      for (const std::size_t index : indices) samples.push_back(set.get(index));
      return samples;
    }
  };
  using Batch = decltype(all());
  if constexpr (std::is_same_v<Batch, std::vector<torch::data::Example<>>>)
    return torch::data::transforms::Stack<>().apply_batch(all());
  else
    return all();
}

}  // namespace detail
}  // namespace skein
