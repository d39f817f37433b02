// The subcommands. Each adds itself to the parser and, when it was chosen, leaves what is to be
// done in invocation.action.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace skein {

void add_train(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_run(CLI::App& app, Invocation& invocation);
void add_bench(CLI::App& app, Invocation& invocation);
void add_simulate(CLI::App& app, Invocation& invocation);
void add_advise(CLI::App& app, Invocation& invocation);
void add_profile(CLI::App& app, Invocation& invocation);
void add_topology(CLI::App& app, Invocation& invocation);
void add_checkpoints(CLI::App& app, Invocation& invocation);
void add_watch(CLI::App& app, Invocation& invocation);
void add_agent(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);

}  // namespace skein
