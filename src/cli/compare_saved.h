// The commands inside `skein compare` that read what it has written.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace skein {

void add_compare_saved(CLI::App& compare, Invocation& invocation);

}  // namespace skein
