// Checks of the numbers that a user gives an optimizer. Each throws ConfigError that names the
// number and what is allowed.
#pragma once

#include <string_view>

namespace skein {

void require_not_negative(std::string_view what, double value);  // and finite
void require_positive(std::string_view what, double value);      // and finite
void require_fraction(std::string_view what, double value);      // 0 ≤ value < 1

}  // namespace skein
