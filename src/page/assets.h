// The files that the build has put into the program: our own of assets/, and Chart.js.
#pragma once

#include <string_view>

namespace skein {

// The text of a file in assets/, or of Chart.js as "chart.js"; empty for any other name, and for
// "chart.js" where the build did not find it.
std::string_view asset(std::string_view name);

// What stands in the way of plots, as one sentence without its full stop; empty: nothing does.
std::string_view plots_missing();

}  // namespace skein
