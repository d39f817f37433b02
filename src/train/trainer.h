// The training loop of one worker.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "data/open.h"
#include "models/model.h"
#include "plan/marks.h"
#include "skein/progress.h"
#include "skein/torch.h"
#include "torch/train_access.h"
#include "train/compute.h"
#include "train/job_data.h"
#include "train/job_folder.h"
#include "train/job_traces.h"
#include "train/report.h"
#include "train/step_log.h"
#include "train/train_step.h"

namespace skein {

class Trainer {
 public:
  // Opens the data, makes the model, joins nobody: `world` is joined already. Resumes if asked to.
  // `local_rank`: this worker's number on its host.
  Trainer(World& world, const TrainOptions& options, int local_rank, Time started);

  // Trains to the end of the budget, the target or a request to stop; evaluates, saves and reports.
  // False, on all workers, when a request came before the end. After an urgent one it only saves
  // what another run needs to go on, and reports.
  bool run();

 private:
  Distributed make_run();
  void check_options() const;
  std::string resume();
  bool train_one_step();
  std::vector<NamedTensor> buffers_now();
  bool evaluate_now(const std::function<bool()>& stop);  // false: cut short, nothing is known
  void checkpoint_now();
  void finish_checkpoint();
  void show(Lane lane, const std::string& name, Time begin);
  void catch_up();
  ProgressFigures progress() const;
  std::pair<bool, bool> agree_on_the_end(bool finished);
  void report(bool finished);

  std::int64_t done() const { return run_.samples(); }
  Time now() const { return clock_.now(); }
  std::int64_t agreed_samples();
  std::pair<std::int64_t, std::int64_t> meet(bool at_the_end);
  void evaluate_and_save();
  void wait_for_the_end();

  World& world_;
  const TrainOptions& options_;
  SteadyClock clock_;
  Compute compute_;
  DataSets data_;
  const std::int64_t budget_;
  // What `run_` calls and writes to as long as it lives comes before it.
  JobTraces traces_;
  JobFolder folder_;
  std::shared_ptr<Model> model_;
  Distributed run_;
  TrainAccess access_;
  const RunTraits traits_;
  RunFigures figures_;
  JobData feed_;
  TrainStep step_;
  std::optional<StepLog> log_;  // from where the run was resumed on
  Marks evaluations_, checkpoints_;
  ProgressBar bar_;
  std::optional<Quality> quality_;
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  bool reached_ = false;    // the target
  Duration last_update_{};  // in training time
};

}  // namespace skein
