// Reads the options of `skein compare`.
#pragma once

#include <string>
#include <vector>

#include "cli/compare_job.h"
#include "cli/options.h"
#include "compare/comparison.h"
#include "compare/runner.h"

namespace skein {

// Declares what the comparison itself takes. Every other option is the runs'.
class CompareOptionReader {
 public:
  explicit CompareOptionReader(CLI::App& command);

  struct Request {
    compare::Comparison comparison;  // rows without runs
    compare::Plan plan;
    std::string report;  // file
    std::string page;    // address of a live page, or empty
  };

  // To be called once, when the command line was parsed. Checks every run that will be made as the
  // command that makes it would, and makes the folder --out. ConfigError for what is wrong, with
  // the entry whose it is.
  Request read(const Invocation& invocation);

  CommandOptions& options() { return options_; }
  const CommandOptions& options() const { return options_; }

 private:
  void declare();
  void read_jobs(const Invocation& invocation, Request& request);
  void check_runs(const CompareJobs& jobs, Request& request) const;
  void check_search(const Request& request) const;
  void check_folder() const;
  void read_expected(compare::Comparison& comparison) const;

  CLI::App& command_;
  CommandOptions options_;
  std::string strategies_, out_ = "out/compare", report_, title_, expect_, search_by_ = "accuracy";
  std::string page_;
  bool simulate_ = false, continue_ = false, overwrite_ = false, no_timeline_ = false;
  int rounds_ = 1;
  std::int64_t search_samples_ = 0;
  std::vector<std::string> searches_;
};

}  // namespace skein
