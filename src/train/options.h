// What a training job is: the options of `skein train`, read and checked. No torch here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulate/pace.h"
#include "runtime/credentials.h"

namespace skein {

struct TrainOptions {
  using Settings = std::map<std::string, std::string>;  // --set PART.KEY=VALUE without PART

  // The job.
  std::string strategy = "allreduce";  // one of strategy_names()
  std::string model = "mlp";
  std::string data = "glyphs";
  Settings strategy_settings, model_settings, data_settings;
  std::uint64_t seed = 1;
  std::string data_split = "own";  // or "once": how workers that step at their own pace share data

  // Who does it.
  int workers = 1;  // of the whole run; under another launcher, as many as it started
  std::string fabric = "local";
  std::string rendezvous;   // of fabrics between hosts; empty: what the launcher says
  Credentials credentials;  // likewise
  bool encrypt = true;
  bool two_levels = true;
  int threads = 1;                     // that torch may use in each worker
  std::string device = "auto";         // "cpu", "cuda", "cuda:K" or "auto"
  std::string precision = "f32";       // or "bf16": of forward and loss
  std::string tf32 = "default";        // "on" or "off": may float32 products on GPUs be rounded
  std::string channels_last = "auto";  // "on" or "off": how images lie in memory
  bool deterministic = false;          // the same bits from the same seed, on a GPU too
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);  // the longest wait for a peer

  // How much. One of the two is positive.
  int epochs = 3;
  std::int64_t samples = 0;    // over all workers; 0: as many as `epochs` have
  std::int64_t batch = 32;     // per worker and micro-batch
  int accumulate = 1;          // micro-batches per step
  double target_accuracy = 0;  // in (0, 1]: stop when an evaluation reaches it; 0: never

  // A run that was started anew with fewer workers keeps its global batch, which is that of so many
  // workers; 0: of those that there are.
  int batch_workers = 0;
  std::string restarts_json = "[]";  // what the launcher knows of them, for the report
  // How long workers that the launcher of a restarted run has lost may live on.
  std::chrono::milliseconds outlived{0};

  // The optimizer.
  std::string optimizer = "sgd";  // or "adamw"
  double learning_rate = 0.05;    // what `skein train` sets when not given
  double momentum = 0.9;          // sgd only
  bool nesterov = false;          // sgd only
  double weight_decay = 0;
  std::string groups;                 // what parse_parameter_groups() reads
  bool decay_1d = true;               // false: no weight decay on tensors of one dimension
  std::string schedule = "constant";  // what parse_schedule() reads
  double clip = 0;                    // largest global norm of the gradient; 0: no limit
  std::string wire = "f32";           // --wire, which is in strategy_settings too

  // What is kept.
  std::string out;                    // folder, which exists; empty: nothing is kept
  std::string resume;                 // the `out` of an earlier run, which exists; empty: a new run
  bool resume_auto = false;           // `resume` is `out` if that holds a checkpoint, else empty
  bool overwrite = false;             // another run that `out` holds is removed
  std::int64_t checkpoint_every = 0;  // samples; 0: only at the end
  int keep_checkpoints = 2;
  std::int64_t eval_every = 0;  // samples; 0: after each epoch
  // Training batches of each worker from which batch-norm statistics are computed anew for an
  // evaluation and for the final model; 0: the workers' running statistics are averaged.
  int bn_recompute = 0;

  // One host made to behave like a bad cluster. Zero or empty: not emulated.
  std::vector<double> emulate_speeds;           // one positive number per worker, relative
  std::chrono::nanoseconds emulate_step{0};     // a micro-batch at speed 1 takes at least this
  double jitter = 0;                            // a micro-batch takes 1 ± this, uniformly
  Slowdowns slowdowns;                          // slow periods that come and go
  double emulate_link = 0;                      // bytes per second of each worker, each direction
  std::chrono::nanoseconds emulate_latency{0};  // of every message

  // What is said about it.
  std::string json;            // file, or empty
  std::string trace;           // file, or empty
  std::string tensorboard;     // folder, or empty
  std::string page;            // address of the live page, or empty: there is none
  bool timeline = false;       // every worker leaves in `folder()` what it does when
  std::string observed;        // folder that the page shows where `out` is empty
  std::string command;         // "train", for the JSON
  std::string version;         // of Skein, for the JSON
  std::string config_json;     // every option and its value as one JSON object, for the JSON
  std::int64_t log_every = 0;  // steps between two progress lines; 0: as fits the terminal
  bool quiet = false;
  bool verify = false;  // check after every step that all replicas are bit-equal

  // Where metrics go; empty: nowhere.
  const std::string& folder() const { return out.empty() ? observed : out; }
};

}  // namespace skein
