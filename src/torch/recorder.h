// Tells the user how the run is going.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "core/clock.h"
#include "skein/torch.h"
#include "torch/late_number.h"

namespace skein {

// For the user's thread. Where nobody looks a step costs it one comparison.
class Recorder {
 public:
  using Look = std::function<void(const Record&)>;

  explicit Recorder(Distributed::Impl& run) : run_(run) {}

  // See Distributed.
  void start(std::int64_t every, Look look);
  void add_loss(const torch::Tensor& loss);
  void add_loss(double loss);
  void add(const std::string& name, double value);

  // A step has ended.
  void step_over() {
    if (look_) record_if_due();
  }

  // From now on nobody looks, and what was not shown is dropped.
  void stop() {
    look_ = nullptr;
    pending_.clear();
  }

  // Waits for what a device is computing, and shows it.
  void deliver_all() { deliver(0); }

 private:
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };

  // Shown when its loss is there.
  struct Pending {
    Record record;
    LateNumber device_loss;  // the sum of those that the device computes
  };

  void record_if_due();
  Record make_record();
  void deliver(std::size_t left);

  Distributed::Impl& run_;
  Look look_;
  std::int64_t every_ = 1;
  Time started_{};

  // Of the last record.
  Time last_{};
  std::int64_t steps_ = 0, samples_ = 0;
  Duration exposed_{};

  Mean loss_;                  // its sum without what is on a device
  torch::Tensor device_loss_;  // that sum
  std::map<std::string, Mean> more_;
  std::deque<Pending> pending_;
};

}  // namespace skein
