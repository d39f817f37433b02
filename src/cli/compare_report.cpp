#include "cli/compare_report.h"

#include "core/atomic_file.h"
#include "page/assets.h"
#include "page/self_contained.h"

namespace skein {

bool write_report(const std::string& file, const nlohmann::json& data) {
  if (!plots_missing().empty()) return false;
  write_whole(file, self_contained("report.html", data));
  return true;
}

}  // namespace skein
