// The folder in which a job keeps what it has done, and the files that it appends to as it goes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/clock.h"
#include "keep/folder_lock.h"
#include "skein/metrics_file.h"
#include "skein/tensorboard.h"
#include "skein/world.h"
#include "train/options.h"

namespace skein {

// TrainOptions::folder(), if the job has one, and its TensorBoard folder. One worker writes for
// all: rank 0, or the next that leads when that is lost.
class JobFolder {
 public:
  // Takes the folder for this run, before anything in it is read or written; all workers hold it,
  // so that it stays this run's when one is lost that writes there. All workers make one. Throws
  // ConfigError, on all of them, where it is another run's.
  JobFolder(World& world, const TrainOptions& options);

  // Gives the run its id: that of the run which is continued in its own folder, or a new one, as
  // rank 0 says. All workers call it. `resumed`: of the run that the checkpoint is of, if it says
  // so.
  void name_run(const std::string& resumed);
  const std::string& run_id() const { return run_id_; }

  // Where a run stands when it begins or goes on.
  struct Start {
    std::int64_t steps = 0, samples = 0, budget = 0;
    std::int64_t resumed_at = -1;  // samples of the checkpoint; -1: none
    std::string resumed_id;
    std::string device;
  };

  // Rank 0 removes what is another run's, writes run.json and opens the files.
  void start(const Start& start);

  // Where the worker that wrote for all has been lost and this one leads now, it goes on with the
  // files.
  void lead(std::int64_t steps, std::int64_t samples);

  // Of the worker that writes; others have none.
  std::optional<MetricsWriter>& metrics() { return metrics_; }
  std::optional<TensorBoardWriter>& events() { return events_; }
  void write(const nlohmann::json& line);  // to the metrics, if there are any

  // Says it on rank 0, also with --quiet.
  void warn(const std::string& line) const;

 private:
  void wait_for_folder();
  void retake();
  void start_files(const Start& start);

  World& world_;
  const TrainOptions& options_;
  FolderLock lock_;
  std::string run_id_;
  std::optional<MetricsWriter> metrics_;
  std::optional<TensorBoardWriter> events_;
};

}  // namespace skein
