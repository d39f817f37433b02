// What of a run goes into a checkpoint, as tensors with names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein {

// While it lives a device does nothing but what is done here with torch: what the strategy and the
// model had put on it before is done, and so is what was done here when it ends. The optimizer's
// state is taken and cleared before that, too: it is when it is first asked for.
class AtRest {
 public:
  explicit AtRest(Distributed::Impl& run);
  ~AtRest();
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

 private:
  void finish();

  Distributed::Impl& run_;
};

// This worker's own: buffers, random generators, the strategy's own state and, where each worker
// has a model of its own, its steps and the state of its optimizer. The tensors alias the run's.
// Call it AtRest.
std::vector<NamedTensor> own_tensors(Distributed::Impl& run, std::int64_t steps);

// A program's own numbers as tensors of the same file, and back: what is there of neither run nor
// moving average. ConfigError for a name that one of these has.
std::vector<NamedTensor> tensors_of(const OwnNumbers& numbers);
OwnNumbers own_numbers(const SafeTensors& file);

// Throws ConfigError, naming `path` and the tensor, where `file` is not of such a run.
void check_own(const std::filesystem::path& path, const SafeTensors& file, Distributed::Impl& run);

// Copies it back, and returns this worker's steps, or `steps` where all have the same. Call it
// AtRest, after check_own().
std::int64_t restore_own(const std::filesystem::path& path, const SafeTensors& file,
                         Distributed::Impl& run, std::int64_t steps);

// After that, and after the run's settings: how many updates each of this worker's parameters has
// missed, where each worker counts its own. A file without it changes nothing.
void restore_own_missed(const SafeTensors& file, Distributed::Impl& run);

// The optimizer's state of all workers together, which nobody may have as a whole, and what the
// strategy's workers have in common (Strategy::shared_state): the tensors of a file, in the order
// in which stream_parameters() shows their values on rank `to`. All workers call that.
std::vector<TensorShape> state_shapes(Distributed::Impl& run);
void stream_parameters(Distributed::Impl& run, int to, const WriteValues& write);

// Throws ConfigError, naming the file and the tensor, where it is another optimizer's or model's.
void check_optimizer(const std::filesystem::path& path, const SafeTensorsFile& file,
                     Distributed::Impl& run);

// Reads what this worker owns of it, and what all have in common. Call it AtRest, after
// check_optimizer().
void restore_optimizer(const SafeTensorsFile& file, Distributed::Impl& run);

// The names of the optimizer's state: "exp_avg, exp_avg_sq"; "none".
std::string kind_of_state(Distributed::Impl& run);

// The parameters' names as they lie in the arena. Sums are rounded in the order in which it is cut,
// so a run that goes on bit for bit must have it from its first step on.
std::vector<std::string> order_of(Distributed::Impl& run);

// Lays the arena out so; names of another module, or none, change nothing. All workers call it.
void lay_out(Distributed::Impl& run, const std::vector<std::string>& names);

}  // namespace skein
