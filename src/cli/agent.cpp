// skein agent: what a launcher starts on each host. Not for people, so --help does not list it.
#include <unistd.h>

#include "cli/commands.h"
#include "launch/agent.h"
#include "skein/error.h"

namespace skein {

void add_agent(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("agent", "start workers here as a launcher elsewhere says");
  command.group("");
  command.callback([&invocation] {
    invocation.action = [] {
      if (isatty(STDIN_FILENO) != 0)
        throw ConfigError(
            "this is started by 'skein train --hosts' and 'skein run --hosts', not by hand");
      run_agent(STDIN_FILENO, STDOUT_FILENO);
      return 0;
    };
  });
}

}  // namespace skein
