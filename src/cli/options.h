// What the subcommands share: how an option is declared, checked, and read from a file.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"

namespace skein {

struct ConfigEntry;

// What the user typed, and what is to be done about it.
struct Invocation {
  std::vector<std::string> arguments;  // after the program's own name
  std::vector<std::string> program;    // of `run`: what follows the first --
  std::function<int()> action;         // the chosen subcommand; returns the exit code
};

// The options of one subcommand. Every value is checked as it is read; what is wrong is a
// ConfigError that names the option, the value and what is allowed. The variables behind the
// options keep their values, which --help shows as defaults, unless the option is given. They must
// live as long as the parser.
//
// Every subcommand also has --json, --config, --seed and --quiet: declare_common() adds them, last.
class CommandOptions {
 public:
  explicit CommandOptions(CLI::App& command);

  void declare_common();
  void group(const std::string& title) { group_ = title; }  // of the options declared from here on

  CLI::Option* flag(const std::string& name, bool& target, const std::string& help);
  CLI::Option* text(const std::string& name, std::string& target, const std::string& kind,
                    const std::string& help);
  // A file that is one document and is written once, at the end; "-" is standard output. Only one
  // of a command's documents can be there.
  CLI::Option* document(const std::string& name, std::string& target, const std::string& kind,
                        const std::string& help);
  CLI::Option* choice(const std::string& name, std::string& target,
                      const std::vector<std::string>& allowed, const std::string& help);
  CLI::Option* integer(const std::string& name, std::int64_t& target, std::int64_t low,
                       const std::string& kind, const std::string& help,
                       std::int64_t high = std::numeric_limits<std::int64_t>::max());
  CLI::Option* integer(const std::string& name, int& target, int low, int high,
                       const std::string& kind, const std::string& help);
  // A finite number; `allowed` describes in words what `check` accepts.
  CLI::Option* number(const std::string& name, double& target, const std::string& allowed,
                      std::function<bool(double)> check, const std::string& help);
  CLI::Option* duration(const std::string& name, std::chrono::nanoseconds& target,
                        const std::string& help);
  CLI::Option* bandwidth(const std::string& name, double& target, const std::string& help);
  // May be given several times.
  CLI::Option* repeated(const std::string& name, std::vector<std::string>& target,
                        const std::string& kind, const std::string& help);

  // To be called once, when the command line has been parsed: takes from the --config file every
  // option that the command line does not give. Unknown keys are errors with near matches.
  void read_config_file();

  // The same of one line of it. False: there is no such option, which is the caller's to handle.
  bool take(const ConfigEntry& entry);
  const std::string& config_file() const { return config_; }  // empty: there is none

  // To be called when all options are read, before anything is printed. `here`: this process writes
  // the documents. Then, where one is to go to standard output, that is kept for it: everything
  // else that this process prints there goes to standard error from now on, and the option's value
  // becomes a path to the real standard output. ConfigError where two documents would go there.
  void open_documents(bool here);

  // --set of the file, which those of the command line override.
  const std::vector<std::string>& config_sets() const { return config_sets_; }

  bool given(const std::string& name) const;  // on the command line or in the file

  // Every option with its value, given or not: the `config` of --json.
  nlohmann::json config() const;

  const std::string& json() const { return json_; }
  std::uint64_t seed() const { return seed_; }
  bool quiet() const { return quiet_; }

 private:
  using Read = std::function<void(const std::string&)>;
  CLI::Option* add(const std::string& name, Read read, const std::string& kind,
                   const std::string& help, const std::string& value);

  struct Document {
    std::string option;
    std::string* path;
  };

  CLI::App& command_;
  std::string group_ = "Options";
  std::vector<Document> documents_;
  FileDescriptor standard_output_;  // where a document goes there
  std::string json_, config_;
  std::uint64_t seed_ = 1;
  bool quiet_ = false;
  std::vector<std::string> config_sets_;
};

bool is_flag(const CLI::Option& option);

// The long names of a subcommand's options, without dashes.
std::vector<std::string> option_names(const CLI::App& command);

}  // namespace skein
