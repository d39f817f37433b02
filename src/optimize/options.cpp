#include "optimize/options.h"

#include <fmt/format.h>

#include <cmath>

#include "skein/error.h"

namespace skein {
namespace {

void require(bool allowed, std::string_view what, double value, std::string_view expected) {
  if (!allowed) throw ConfigError(fmt::format("{} is {}: expected {}", what, value, expected));
}

}  // namespace

void require_not_negative(std::string_view what, double value) {
  require(std::isfinite(value) && value >= 0, what, value, "a finite number, 0 or more");
}

void require_positive(std::string_view what, double value) {
  require(std::isfinite(value) && value > 0, what, value, "a finite number above 0");
}

void require_fraction(std::string_view what, double value) {
  require(value >= 0 && value < 1, what, value, "a number from 0 to below 1");
}

}  // namespace skein
