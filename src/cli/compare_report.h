// The HTML report of comparisons.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace skein {

// Writes the page report.html with `data` in it: {"comparisons": [compare.json, …]} or what
// `compare diff` found. False where the build has no plots: plots_missing() says why.
bool write_report(const std::string& file, const nlohmann::json& data);

}  // namespace skein
