// Pages that need nothing but themselves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace skein {

// `json` as the text of a <script> element: nothing in it ends the element or begins a comment,
// and JSON.parse gives back the same value.
std::string script_safe(const nlohmann::json& json);

// The asset `page` with the styles and scripts that it names in it, and `data` where it says
// <!-- data -->, for skein.embedded(). ConfigError where there are no plots, with the reason.
std::string self_contained(std::string_view page, const nlohmann::json& data);

}  // namespace skein
