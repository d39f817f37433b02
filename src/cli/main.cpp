// skein COMMAND: exit code 0 for success, 2 for an error of the user's (options, files), 1 for
// anything else that went wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "cli/suggest.h"
#include "skein/error.h"

namespace skein {
namespace {

Invocation read_arguments(int argc, char** argv) {
  Invocation out;
  out.arguments.assign(argv + 1, argv + argc);
  return out;
}

// What the parser is to see. `run` has another program's options after its own: they are not ours
// to parse.
std::vector<std::string> split_program(Invocation& invocation) {
  std::vector<std::string> ours = invocation.arguments;
  if (ours.empty() || ours.front() != "run") return ours;
  const auto dashes = std::find(ours.begin(), ours.end(), "--");
  if (dashes == ours.end()) return ours;
  invocation.program.assign(dashes + 1, ours.end());
  ours.erase(dashes, ours.end());
  return ours;
}

// The command that was typed, down to its last part: "bench fabric" is a command inside a command.
const CLI::App& chosen_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.front());
}

std::string unknown_word(const CLI::App& app) {
  const CLI::App& command = chosen_command(app);
  const auto words = command.remaining();
  const std::string word = words.empty() ? "" : words.front();
  std::vector<std::string> commands;
  const auto shown = [](const CLI::App* inner) { return !inner->get_group().empty(); };
  for (const CLI::App* inner : command.get_subcommands(shown))
    commands.push_back(inner->get_name());
  if (!commands.empty())
    return fmt::format("unknown command '{}': expected {}{}", word, fmt::join(commands, ", "),
                       did_you_mean(word, commands));
  if (!word.starts_with("-")) return fmt::format("unexpected '{}'", word);
  std::vector<std::string> names;
  for (const std::string& name : option_names(command)) names.push_back("--" + name);
  const std::string name = word.substr(0, word.find('='));
  return fmt::format("unknown option '{}'{}", name, did_you_mean(name, names));
}

// The parser counts values; what the user did is to give an option too often, or without a value.
std::string wrong_count(const CLI::App& app, const std::string& said) {
  for (const CLI::Option* option : chosen_command(app).get_options())
    if (option->get_items_expected_max() == 1 && option->count() > 1)
      return fmt::format("{} is given {} times ({}): expected once", option->get_name(),
                         option->count(), fmt::join(option->results(), ", "));
  const std::string name = said.substr(0, said.find(':'));
  const CLI::Option* option = chosen_command(app).get_option_no_throw(name);
  if (option == nullptr) return said;
  return fmt::format("{} has no value: expected {}", name, option->get_type_name());
}

std::string prefix(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.get_name() : app.get_name() + " " + prefix(*chosen.front());
}

int say(const CLI::App& app, const std::string& message, int code) {
  fmt::print(stderr, "{}: {}\n", prefix(app), message);
  return code;
}

int run_command_line(int argc, char** argv) {
  Invocation invocation = read_arguments(argc, argv);
  CLI::App app{"Trains PyTorch models on many workers, on slow networks and unequal machines."};
  app.name("skein");
  app.set_version_flag("--version", "skein " SKEIN_VERSION, "print the version and end");
  app.set_help_flag("-h,--help", "print this and end; skein COMMAND --help says more");
  app.require_subcommand(0, 1);
  try {
    add_train(app, invocation);
    add_compare(app, invocation);
    add_run(app, invocation);
    add_bench(app, invocation);
    add_simulate(app, invocation);
    add_advise(app, invocation);
    add_profile(app, invocation);
    add_topology(app, invocation);
    add_checkpoints(app, invocation);
    add_watch(app, invocation);
    add_doctor(app, invocation);
    add_agent(app, invocation);
    auto arguments = split_program(invocation);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
    if (!invocation.action) throw ConfigError("which command? skein --help lists them");
    return invocation.action();
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ExtrasError&) {
    return say(app, unknown_word(app), 2);
  } catch (const CLI::ArgumentMismatch& error) {
    return say(app, wrong_count(app, error.what()), 2);
  } catch (const CLI::ParseError& error) {
    return say(app, error.what(), 2);
  } catch (const ConfigError& error) {
    return say(app, error.what(), 2);
  } catch (const std::exception& error) {
    return say(app, error.what(), 1);
  }
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) { return skein::run_command_line(argc, argv); }
