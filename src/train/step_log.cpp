#include "train/step_log.h"

#include <fmt/format.h>

#include <cmath>

#include "core/field_names.h"

namespace skein {

StepLog::StepLog(Distributed& run, JobFolder& folder)
    : run_(run),
      folder_(folder),
      steps_(run.steps()),
      shown_samples_(static_cast<double>(run.samples())) {
  run.on_record(1, [this](const Record& record) {
    records_.push_back(record);
    write_those_known();
  });
}

void StepLog::step_over(double seconds, double iteration_ms, bool reported) {
  steps_ = run_.steps();
  timings_.push_back({seconds, iteration_ms, reported});
  write_those_known();
}

void StepLog::write_those_known() {
  while (!records_.empty() && !timings_.empty()) {
    const Record record = records_.front();
    const Timing timing = timings_.front();
    records_.pop_front();
    timings_.pop_front();
    write(record, timing);
  }
}

void StepLog::write(Record record, const Timing& timing) {
  if (timing.reported && !std::isfinite(record.loss))
    throw Error(fmt::format("the loss is {} at step {}: try a smaller --lr, or --clip", record.loss,
                            record.step));
  if (!std::isnan(record.loss)) last_loss_ = record.loss;
  smooth_loss_ = smooth_loss_ < 0 ? last_loss_ : 0.9 * smooth_loss_ + 0.1 * last_loss_;
  record.loss = last_loss_;
  record.seconds = timing.seconds;
  record.step_ms = timing.iteration_ms;
  record.samples_per_second = Record::kUnknown;  // with evaluations and checkpoints in it
  if (folder_.metrics()) folder_.metrics()->write(record);
  if (!folder_.events()) return;
  TensorBoardWriter& events = *folder_.events();
  events.scalar(field::kLoss, record.step, record.loss);
  events.scalar(field::kLearningRate, record.step, record.learning_rate);
  events.scalar(field::kExposedCommMs, record.step, record.exposed_comm_ms);
  events.scalar(field::kConsensusDistance, record.step, record.consensus);
  const auto samples = static_cast<double>(record.samples);
  if (record.seconds > shown_seconds_)
    events.scalar(field::kSamplesPerSecond, record.step,
                  (samples - shown_samples_) / (record.seconds - shown_seconds_));
  shown_samples_ = samples;
  shown_seconds_ = record.seconds;
}

}  // namespace skein
