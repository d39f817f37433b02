#include "cli/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "cli/config.h"
#include "cli/suggest.h"
#include "core/atomic_file.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein {
namespace {

// `name` may be "-n,--workers": errors have the long one.
template <typename T>
T checked_number(const std::string& name, const std::string& text, const std::string& allowed,
                 const std::function<bool(T)>& check) {
  T value{};
  if (!parse_number(text, value) || !check(value))
    throw ConfigError(
        fmt::format("{} {}: expected {}", name.substr(name.rfind(',') + 1), text, allowed));
  return value;
}

// Says whose value it was that a parser of units refused.
template <typename Parse>
auto named(const std::string& name, Parse parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", name, error.what()));
  }
}

std::string long_name(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

// A number or a truth value as JSON has them, else text.
nlohmann::json typed(const std::string& text) {
  const auto value = nlohmann::json::parse(text, nullptr, false);
  return value.is_number() || value.is_boolean() ? value : nlohmann::json(text);
}

}  // namespace

CommandOptions::CommandOptions(CLI::App& command) : command_(command) {
  command.set_help_flag("-h,--help", "print this and end");
}

void CommandOptions::declare_common() {
  group("Every command");
  document("--json", json_, "FILE", "write every figure as one JSON object");
  text("--config", config_, "FILE.toml", "take options from a file; the command line wins");
  add(
      "--seed",
      [this](const std::string& text) {
        seed_ = checked_number<std::uint64_t>("--seed", text, "a whole number from 0 to 2^64 - 1",
                                              [](std::uint64_t) { return true; });
      },
      "N", "the seed of everything random", std::to_string(seed_));
  flag("--quiet", quiet_, "print results and errors only");
}

CLI::Option* CommandOptions::add(const std::string& name, Read read, const std::string& kind,
                                 const std::string& help, const std::string& value) {
  auto* option = command_.add_option_function<std::string>(name, std::move(read), help);
  option->group(group_)->type_name(kind);
  if (!value.empty()) option->default_str(value);
  return option;
}

CLI::Option* CommandOptions::flag(const std::string& name, bool& target, const std::string& help) {
  return command_.add_flag(name, target, help)->group(group_);
}

CLI::Option* CommandOptions::text(const std::string& name, std::string& target,
                                  const std::string& kind, const std::string& help) {
  const auto read = [name, kind, &target](const std::string& text) {
    if (text.empty()) throw ConfigError(fmt::format("{} '': expected {}", name, kind));
    target = text;
  };
  return add(name, read, kind, help, target);
}

CLI::Option* CommandOptions::document(const std::string& name, std::string& target,
                                      const std::string& kind, const std::string& help) {
  documents_.push_back({name, &target});
  return text(name, target, kind, help + "; - is standard output");
}

void CommandOptions::open_documents(bool here) {
  std::vector<Document> on_output;
  for (const Document& each : documents_)
    if (*each.path == "-" || (!each.path->empty() && own_descriptor(*each.path) == STDOUT_FILENO))
      on_output.push_back(each);
  if (on_output.empty()) return;
  if (on_output.size() > 1)
    throw ConfigError(fmt::format(
        "{} {} and {} {}: standard output takes one document; expected a file for one of the two",
        on_output[0].option, *on_output[0].path, on_output[1].option, *on_output[1].path));
  if (!here) return;
  std::fflush(stdout);
  standard_output_ = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!standard_output_.valid() || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw Error(fmt::format("{} {}: cannot use standard output: {}", on_output[0].option,
                            *on_output[0].path, std::strerror(errno)));
  *on_output[0].path = fmt::format("/dev/fd/{}", standard_output_.get());
}

CLI::Option* CommandOptions::choice(const std::string& name, std::string& target,
                                    const std::vector<std::string>& allowed,
                                    const std::string& help) {
  const auto read = [name, allowed, &target](const std::string& text) {
    if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      throw ConfigError(fmt::format("{} {}: expected {}{}", name, text, fmt::join(allowed, ", "),
                                    did_you_mean(text, allowed)));
    target = text;
  };
  return add(name, read, fmt::format("{}", fmt::join(allowed, "|")), help, target);
}

CLI::Option* CommandOptions::integer(const std::string& name, std::int64_t& target,
                                     std::int64_t low, const std::string& kind,
                                     const std::string& help, std::int64_t high) {
  const bool open = high == std::numeric_limits<std::int64_t>::max();
  const std::string allowed = open ? fmt::format("a whole number of at least {}", low)
                                   : fmt::format("a whole number from {} to {}", low, high);
  const auto read = [=, &target](const std::string& text) {
    target = checked_number<std::int64_t>(
        name, text, allowed, [=](std::int64_t value) { return value >= low && value <= high; });
  };
  // Zero, where it is not allowed, stands for "not given".
  return add(name, read, kind, help, target >= low ? std::to_string(target) : "");
}

CLI::Option* CommandOptions::integer(const std::string& name, int& target, int low, int high,
                                     const std::string& kind, const std::string& help) {
  const auto read = [=, &target](const std::string& text) {
    target = checked_number<int>(name, text, fmt::format("a whole number from {} to {}", low, high),
                                 [=](int value) { return value >= low && value <= high; });
  };
  return add(name, read, kind, help, target >= low ? std::to_string(target) : "");
}

CLI::Option* CommandOptions::number(const std::string& name, double& target,
                                    const std::string& allowed, std::function<bool(double)> check,
                                    const std::string& help) {
  const std::string value = check(target) ? fmt::format("{}", target) : "";
  const auto read = [=, &target](const std::string& text) {
    target = checked_number<double>(
        name, text, allowed, [=](double number) { return std::isfinite(number) && check(number); });
  };
  return add(name, read, "NUMBER", help, value);
}

CLI::Option* CommandOptions::duration(const std::string& name, std::chrono::nanoseconds& target,
                                      const std::string& help) {
  const auto read = [name, &target](const std::string& text) {
    target = named(name, [&] { return parse_duration(text); });
  };
  return add(name, read, "TIME", help, target.count() > 0 ? print_duration(target) : "");
}

CLI::Option* CommandOptions::bandwidth(const std::string& name, double& target,
                                       const std::string& help) {
  const auto read = [name, &target](const std::string& text) {
    target = named(name, [&] { return parse_bandwidth(text); });
  };
  return add(name, read, "RATE", help, target > 0 ? print_bandwidth(target) : "");
}

CLI::Option* CommandOptions::repeated(const std::string& name, std::vector<std::string>& target,
                                      const std::string& kind, const std::string& help) {
  return command_.add_option(name, target, help)
      ->group(group_)
      ->type_name(kind)
      ->allow_extra_args(false)
      ->take_all();
}

void CommandOptions::read_config_file() {
  if (config_.empty()) return;
  for (const ConfigEntry& entry : read_config(config_))
    if (!take(entry))
      throw ConfigError(fmt::format("{}:{}: unknown key '{}'{}", config_, entry.line, entry.key,
                                    did_you_mean(entry.key, option_names(command_))));
}

bool CommandOptions::take(const ConfigEntry& entry) {
  CLI::Option* option = command_.get_option_no_throw("--" + entry.key);
  if (option == nullptr || entry.key == "config" || entry.key == "help") return false;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}:{}: {}", config_, entry.line, what));
  };
  if (entry.key == "set") {
    config_sets_.push_back(entry.value);
    return true;
  }
  if (is_flag(*option) != entry.boolean)
    refuse(fmt::format("{} = {}: expected {}", entry.key, entry.value,
                       is_flag(*option) ? "true or false" : option->get_type_name()));
  if (option->count() > 0 || (entry.boolean && entry.value == "false")) return true;
  option->add_result(entry.value);
  try {
    option->run_callback();
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  return true;
}

bool CommandOptions::given(const std::string& name) const {
  return command_.get_option(name)->count() > 0;
}

nlohmann::json CommandOptions::config() const {
  nlohmann::json out = nlohmann::json::object();
  for (const CLI::Option* option : command_.get_options()) {
    const std::string name = long_name(*option);
    if (name.empty() || name == "help" || name == "config") continue;
    if (is_flag(*option))
      out[name] = option->count() > 0;
    else if (name == "set")
      out[name] = nlohmann::json(config_sets_);
    else if (option->count() > 0)
      out[name] = typed(option->results().back());
    else
      out[name] = option->get_default_str().empty() ? nullptr : typed(option->get_default_str());
    if (name == "set")
      for (const std::string& text : option->results()) out[name].push_back(text);
  }
  return out;
}

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options())
    if (const std::string name = long_name(*option); !name.empty()) out.push_back(name);
  return out;
}

}  // namespace skein
