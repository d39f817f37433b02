#include "train/job_traces.h"

#include <filesystem>

#include "core/atomic_file.h"

namespace skein {

JobTraces::JobTraces(World& world, const TrainOptions& options, int local_rank)
    : world_(world), options_(options) {
  if (options.trace.empty()) return;
  const auto sums =
      world.sum_integers({appears_by_rename(options.trace) ? 0 : 1, local_rank == 0 ? 1 : 0});
  beside_ = sums[0] == 0;
  const bool several_hosts = sums[1] > 1;
  if (!beside_ && several_hosts && options.folder().empty())
    throw ConfigError(
        "--trace: this is no file, and hosts need a folder that all of them see for their parts of "
        "the trace: expected --out DIR, or the name of a file in such a folder");
}

void JobTraces::start(TrainAccess run, const Compute& compute) {
  if (options_.timeline) world_.barrier();
  if (!options_.trace.empty()) {
    recorder_ = std::make_unique<TraceRecorder>(world_.rank());
    all_.add(*recorder_);
  }
  if (options_.timeline) {
    std::function<std::int64_t()> device_bytes;
    if (compute.on_gpu()) device_bytes = [&compute] { return compute.memory_in_use(); };
    timeline_ = std::make_unique<TimelineWriter>(options_.folder(), world_.rank(), device_bytes);
    all_.add(*timeline_);
  }
  if (active()) run.trace_to(all_);
}

void JobTraces::finish(const std::string& run_id) {
  if (!recorder_) return;
  const std::filesystem::path folder = options_.folder();
  const std::filesystem::path stem = beside_          ? std::filesystem::path(options_.trace)
                                     : folder.empty() ? TraceRecorder::stem_apart(run_id)
                                                      : folder / "trace";
  recorder_->write_part(stem);
  world_.barrier();
  if (world_.rank() == world_.leader())
    TraceRecorder::join_parts(stem, world_.size(), options_.trace);
}

}  // namespace skein
