// WatchedRun's figures for Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/field_names.h"
#include "page/watched_run.h"

namespace skein {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

class Exposition {
 public:
  explicit Exposition(std::string labels) : labels_(std::move(labels)) {}

  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    head_ = fmt::format("# HELP skein_{0} {2}\n# TYPE skein_{0} {1}\n", name, type, help);
  }
  // A family of which nothing is known is left out.
  void sample(double value, const std::string& more = "") {
    if (std::isnan(value)) return;
    text_ += std::exchange(head_, "");
    text_ += fmt::format("skein_{}{{{}{}}} {}\n", name_, labels_, more, value);
  }
  void single(const char* name, const char* type, const char* help, double value) {
    family(name, type, help);
    sample(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string labels_, name_, head_, text_;
};

}  // namespace

std::string WatchedRun::prometheus() const {
  constexpr double kUnknown = Downsampled::kUnknown;
  const auto start = starts_.empty() ? nlohmann::json::object() : starts_.back();
  // begin_run() has left only what has the type that is expected here.
  Exposition out(
      fmt::format("strategy=\"{}\"", escaped(start.value(field::kStrategy, std::string()))));
  out.single("running", "gauge", "1 while the run goes on, else 0.", status() == "running" ? 1 : 0);
  out.single("workers", "gauge", "Workers that the run was last started with.",
             start.value(field::kWorkers, kUnknown));
  out.single("starts_total", "counter", "How often the run was started: once, and for each resume.",
             static_cast<double>(starts_.size()));
  out.single("steps_total", "counter", "Updates made.", steps_.last(field::kStep));
  out.single("samples_total", "counter", "Samples trained on, by all workers.",
             steps_.last(field::kSamples));
  out.single("training_seconds_total", "counter",
             "Time in training steps: without start-up, evaluation and checkpoints.",
             steps_.last(field::kSeconds));
  out.single("loss", "gauge", "Training loss of rank 0.", steps_.last(field::kLoss));
  out.single("learning_rate", "gauge", "Of the last update.", steps_.last(field::kLearningRate));
  out.single("iteration_seconds", "gauge", "From update to update.",
             steps_.last(field::kIterationMs) * 1e-3);
  out.single("exposed_communication_seconds", "gauge",
             "Part of an iteration in which rank 0 waited for communication and computed nothing.",
             steps_.last(field::kExposedCommMs) * 1e-3);
  out.single("consensus_distance", "gauge",
             "Mean squared distance of the workers' models from their mean.",
             steps_.last(field::kConsensusDistance));
  out.single("samples_per_second", "gauge", "Of all workers, over the last seconds.",
             recent_samples_per_second());
  out.single("evaluation_loss", "gauge", "Of the last evaluation.",
             evaluations_.last(field::kLoss));
  out.single("accuracy", "gauge", "Of the last evaluation, 0 to 1.",
             evaluations_.last(field::kAccuracy));
  const auto rank_label = [](int rank) { return fmt::format(",rank=\"{}\"", rank); };
  out.family("worker_resident_memory_bytes", "gauge", "Memory of the worker's process.");
  for (const auto& [rank, timeline] : ranks_)
    out.sample(timeline->resident_bytes(), rank_label(rank));
  out.family("worker_device_memory_bytes", "gauge", "What is taken of the worker's GPU's memory.");
  for (const auto& [rank, timeline] : ranks_)
    out.sample(timeline->device_bytes(), rank_label(rank));
  out.family("worker_device_busy_seconds_total", "counter",
             "Time in which the worker's GPU had computing or sums of a step to do.");
  for (const auto& [rank, timeline] : ranks_)
    out.sample(timeline->device_seconds(), rank_label(rank));
  out.family(
      "worker_phase_seconds_total", "counter",
      "What the worker spent its time with, in and between steps; communication runs beside the "
      "rest.");
  for (const auto& [rank, timeline] : ranks_)
    for (const RankTimeline::Phase& phase : RankTimeline::kPhases)
      out.sample(timeline->total_seconds(phase),
                 rank_label(rank) + fmt::format(",phase=\"{}\"", phase.name));
  return out.text();
}

}  // namespace skein
