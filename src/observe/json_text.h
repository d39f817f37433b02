// JSON as text, whatever bytes its strings have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace skein {

// One line, without its end. Names and messages come from outside and may be cut within a
// character: what is not UTF-8 becomes U+FFFD, and nothing throws.
inline std::string text_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace skein
