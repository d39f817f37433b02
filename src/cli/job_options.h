// The options that `train` and `simulate` have in common.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "train/options.h"

namespace skein {

// Declares them on `options`, with `job` behind them; both outlive this.
// The settings of all strategies, a line each, for help.
std::string strategy_settings_help();

class JobOptions {
 public:
  JobOptions(CommandOptions& options, TrainOptions& job) : options_(options), job_(job) {}

  void declare_model();     // and data, and --set
  void declare_strategy();  // and what gossip strategies ask
  void declare_optimizer();
  void declare_speeds();  // of each worker, and how they change
  void declare_link();    // emulated

  // To be called when the command line and the --config file were read: fills in what depends on
  // other options. `with_model`: the job trains --model, which may have a learning rate of its own.
  // ConfigError for what does not fit together.
  void read(bool with_model);

 private:
  void check_optimizer(bool with_model);
  void read_wire();

  CommandOptions& options_;
  TrainOptions& job_;
  std::vector<std::string> sets_;
  std::string speeds_, slowdowns_, topology_;
  double rate_ = -1;
};

// Puts every --set PART.KEY=VALUE, of the --config file and of `sets`, where it belongs in `job`.
// `parts` are those that the command has, of strategy, model and data.
void read_settings(const CommandOptions& options, const std::vector<std::string>& sets,
                   const std::vector<std::string>& parts, TrainOptions& job);

bool positive(double value);
bool not_negative(double value);

}  // namespace skein
