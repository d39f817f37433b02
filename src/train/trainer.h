// The training loop of one worker.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/open.h"
#include "data/prefetch.h"
#include "emulate/pacer.h"
#include "keep/run_folder.h"
#include "models/model.h"
#include "observe/metrics_file.h"
#include "observe/timeline_file.h"
#include "observe/trace_fan.h"
#include "observe/trace_file.h"
#include "plan/marks.h"
#include "runtime/feed.h"
#include "skein/progress.h"
#include "skein/tensorboard.h"
#include "skein/torch.h"
#include "torch/late_number.h"
#include "train/batch_norm.h"
#include "train/checkpoint.h"
#include "train/compute.h"
#include "train/report.h"

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
  using Indices = std::vector<std::uint32_t>;

  // This worker's part of a step: one piece per micro-batch that is not empty.
  struct Part {
    std::vector<Indices> pieces;
    std::int64_t samples = 0;
  };

  void check_options();
  void resume();
  void warn(const std::string& line) const;
  void name_run();
  void start_traces();
  void wait_for_folder();
  void retake_folder();
  void take_folder();
  void place_trace(int local_rank);
  void start_folder();
  void lead_folder();
  void open_feed(const Feed::Start& start);
  Feed::Step next_step(std::int64_t done);
  Part own_part(const Feed::Step& step);
  void train_step(const Part& part, const Part& upcoming);
  torch::Tensor forward(const Batch& batch);  // to the loss
  void micro_batch(const Indices& indices, const Indices* next, double weight);
  std::vector<NamedTensor> buffers_now();
  void save_model();
  bool evaluate_now(const std::function<bool()>& stop);  // false: cut short, nothing is known
  void checkpoint_now();
  void finish_checkpoint();
  void log_step();
  void show(Lane lane, const std::string& name, Time begin);
  void settle_losses(std::size_t left);
  void show_step(const nlohmann::json& line);
  void catch_up();
  ProgressFigures progress() const;
  std::pair<bool, bool> agree_on_the_end(bool finished);
  void report(bool finished);

  std::int64_t done() const { return run_->samples(); }
  std::int64_t step_batch() const;
  bool leads() const { return world_.rank() == world_.impl().leader(); }
  Time now() const { return clock_.now(); }
  std::int64_t agreed_samples();
  std::pair<std::int64_t, std::int64_t> meet(bool at_the_end);
  bool evaluate_and_save();
  void wait_for_the_end();
  std::map<std::string, std::string> identity() const;

  World& world_;
  const TrainOptions& options_;
  SteadyClock clock_;
  Compute compute_;
  DataSets data_;
  std::shared_ptr<Model> model_;
  std::int64_t budget_ = 0;
  bool lockstep_ = true;
  std::int64_t eval_every_ = 0;
  Marks evaluations_, checkpoints_;
  // What `run_` calls and writes to as long as it lives comes before it.
  std::unique_ptr<TraceRecorder> recorder_;
  bool trace_beside_ = true;  // parts of the trace are written beside it
  std::unique_ptr<TimelineWriter> timeline_;
  TraceFan trace_;  // to both
  std::unique_ptr<Pacer> pacer_;
  std::optional<Distributed> run_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::string run_id_;
  std::string resumed_id_;  // of the run that the checkpoint is of, if it says so
  FolderLock folder_lock_;
  MetricsFile metrics_;                      // of the worker that leads
  std::optional<TensorBoardWriter> events_;  // of the worker that leads
  ProgressBar bar_;
  RunFigures figures_;
  GlobalBatches::Position position_;  // of the last step that is over
  Feed::Step next_;                   // drawn, and not begun
  std::string step_name_;             // of the step that is computed, in traces
  Evaluation evaluation_;
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  torch::Tensor step_loss_;  // of the step that is computed, up to now
  LateNumber loss_;          // of this worker's last step
  // Steps whose loss the device may still be computing, with the line to be written of each.
  struct Logged {
    LateNumber loss;
    nlohmann::json line;
  };
  std::deque<Logged> logged_;
  double smooth_loss_ = -1;
  Duration logged_exposed_{};
  double shown_samples_ = 0, shown_seconds_ = 0;  // at the last step that is in events_
  Duration paced_update_{};                       // update time that a micro-batch has made up for
};

}  // namespace skein
