#include "train/simulate/recorded_step.h"

#include <utility>

namespace skein {
namespace {

// Steps before one is recorded: libraries choose their algorithms and take their memory in them.
constexpr int kFirst = 3;

}  // namespace

RecordedStep::RecordedStep(Record record, const Samples& samples,
                           std::function<void(const Batch&)> step)
    : record_(std::move(record)), samples_(samples), step_(std::move(step)) {}

void RecordedStep::run(std::span<const std::uint32_t> indices) {
  const torch::Tensor numbers = numbers_on(samples_.device(), indices);
  if (!graph_ && made_ == kFirst) {
    numbers_ = numbers.clone();
    graph_ = record_([this] { step_(samples_.select(numbers_)); });
  }
  if (!graph_ || numbers_.numel() != numbers.numel()) {
    made_ += graph_ ? 0 : 1;
    return step_(samples_.select(numbers));
  }
  numbers_.copy_(numbers);
  graph_->play();
}

}  // namespace skein
