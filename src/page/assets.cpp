#include "page/assets.h"

namespace skein {

std::string_view plots_missing() {
  if (!asset("chart.js").empty()) return "";
  return "this skein was built without Chart.js, which draws the plots (Debian: libjs-chart.js; or "
         "cmake -DSKEIN_CHART_JS=FILE)";
}

}  // namespace skein
