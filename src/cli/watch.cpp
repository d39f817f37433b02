// skein watch: shows a run's folder in a browser.
#include <fmt/format.h>
#include <poll.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "page/server.h"
#include "page/watched_run.h"
#include "skein/error.h"
#include "skein/stop.h"

namespace skein {
namespace {

class Watch {
 public:
  explicit Watch(CLI::App& command) : options_(command) {
    command.add_option("DIR", folder_, "the --out of a run, finished or not");
    options_.text("--page", page_, "PORT",
                  "where; 0: a free port; HOST:PORT: seen from other hosts, too");
    options_.declare_common();
  }

  int operator()() {
    stop_on_signals();  // first: Ctrl-C ends it well however early it comes
    options_.read_config_file();
    check_folder();
    const JsonOutput json(options_, "watch");
    const PageServer server("--page", parse_page_address("--page", page_), folder_);
    if (!options_.json().empty()) {
      WatchedRun run(folder_);
      run.refresh();
      json.write({{"url", server.url()}, {"run", run.state({})}}, options_.seed(),
                 options_.config());
    }
    fmt::print("{}\n", server.url());
    std::fflush(stdout);
    if (!options_.quiet()) fmt::print(stderr, "Ctrl-C ends it.\n");
    while (!stop_requested()) poll(nullptr, 0, 200);  // a signal may be another thread's
    return 0;
  }

 private:
  void check_folder() const {
    namespace fs = std::filesystem;
    if (folder_.empty())
      throw ConfigError("which folder? Usage: skein watch DIR, the --out of a run");
    std::error_code none;
    for (const char* name : {"run.json", "metrics.jsonl"})
      if (fs::exists(fs::path(folder_) / name, none)) return;
    throw ConfigError(fmt::format(
        "{}: no run there; expected the --out of a run, with run.json or metrics.jsonl in it",
        folder_));
  }

  CommandOptions options_;
  std::string folder_, page_ = "8080";
};

}  // namespace

void add_watch(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("watch", "show a run's folder in a browser");
  command.footer(
      "Prints the page's address, which holds a token: who has it may see the page. What each "
      "worker did\nwhen is there if the run had --page or --timeline.\n\n"
      "Example: skein watch out/first\n"
      "         skein watch out/first --page 0.0.0.0:8080");
  auto watch = std::make_shared<Watch>(command);
  command.callback([watch, &invocation] { invocation.action = [watch] { return (*watch)(); }; });
}

}  // namespace skein
