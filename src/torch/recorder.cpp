#include "torch/recorder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/field_names.h"
#include "torch/distributed_impl.h"

namespace skein {
namespace {

// How many records may wait for a device when a step has ended.
constexpr std::size_t kAhead = 2;

}  // namespace

void Recorder::start(std::int64_t every, Look look) {
  if (every < 1)
    throw ConfigError(fmt::format("on_record({}): expected a record every 1 or more steps", every));
  deliver_all();
  look_ = std::move(look);
  every_ = every;
  started_ = last_ = run_.world().impl().loop().now();
  steps_ = run_.worker().progress.steps;
  samples_ = run_.worker().progress.samples;
  exposed_ = run_.time().waiting();
  loss_ = {};
  device_loss_.reset();
  more_.clear();
}

void Recorder::add_loss(double loss) {
  if (!look_) return;
  loss_.sum += loss;
  ++loss_.count;
}

void Recorder::add_loss(const torch::Tensor& loss) {
  if (!look_) return;
  if (!loss.defined() || loss.numel() != 1)
    throw ConfigError("report_loss(): expected a tensor of one number");
  if (loss.is_cpu()) return add_loss(loss.item<double>());
  const torch::NoGradGuard no_grad;
  const torch::Tensor value = loss.detach().reshape({}).to(torch::kFloat64);
  device_loss_ = device_loss_.defined() ? device_loss_ + value : value;
  ++loss_.count;
}

void Recorder::add(const std::string& name, double value) {
  if (!look_) return;
  Mean& mean = more_[name];
  mean.sum += value;
  ++mean.count;
}

void Recorder::record_if_due() {
  if (run_.worker().progress.steps - steps_ < every_) return;
  Record record = make_record();
  const bool late = device_loss_.defined();
  pending_.push_back({std::move(record), late ? LateNumber(device_loss_) : LateNumber()});
  device_loss_.reset();
  deliver(late ? kAhead : 0);
}

Record Recorder::make_record() {
  const Time now = run_.world().impl().loop().now();
  const Progress& progress = run_.worker().progress;
  const auto steps = static_cast<double>(progress.steps - steps_);
  const Duration time = now - last_, exposed = run_.time().waiting();
  Record record;
  record.step = progress.steps;
  record.samples = progress.samples;
  record.seconds = seconds(now - started_);
  record.samples_per_second = static_cast<double>(progress.samples - samples_) / seconds(time);
  record.step_ms = milliseconds(time) / steps;
  record.exposed_comm_ms = milliseconds(exposed - exposed_) / steps;
  record.learning_rate = run_.settings().learning_rate();
  const auto count = static_cast<double>(loss_.count);
  record.loss = loss_.count > 0 ? loss_.sum / count : Record::kUnknown;
  if (device_loss_.defined()) device_loss_ = device_loss_ / count;
  for (const auto& [name, mean] : more_)
    record.more[name] = mean.sum / static_cast<double>(mean.count);
  run_.look_at([&](const Strategy& strategy) {
    const nlohmann::json figures = strategy.step_figures();
    for (const auto& [name, value] : figures.items()) {
      if (!value.is_number()) continue;
      if (name == field::kConsensusDistance)
        record.consensus = value.get<double>();
      else
        record.more[name] = value.get<double>();
    }
  });
  last_ = now;
  steps_ = progress.steps;
  samples_ = progress.samples;
  exposed_ = exposed;
  loss_ = {};
  more_.clear();
  return record;
}

void Recorder::deliver(std::size_t left) {
  while (pending_.size() > left) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    next.record.loss += next.device_loss.value();
    look_(next.record);
  }
}

}  // namespace skein
