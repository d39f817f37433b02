#include "train/precision.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "skein/error.h"

namespace skein {
namespace {

// LibTorch has a function for every kind of device since 2.4; before, each kind had its own. Those
// that are not there are looked for and not found.
namespace any_torch {

using namespace at::autocast;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

template <typename Kind>
bool enabled(Kind device) {
  if constexpr (requires { is_autocast_enabled(device); })
    return is_autocast_enabled(device);
  else
    return device == torch::kCUDA ? is_enabled() : is_cpu_enabled();
}

template <typename Kind>
void enable(Kind device, bool on) {
  if constexpr (requires { set_autocast_enabled(device, on); })
    set_autocast_enabled(device, on);
  else if (device == torch::kCUDA)
    set_enabled(on);
  else
    set_cpu_enabled(on);
}

template <typename Kind>
torch::ScalarType type(Kind device) {
  if constexpr (requires { get_autocast_dtype(device); })
    return get_autocast_dtype(device);
  else
    return device == torch::kCUDA ? get_autocast_gpu_dtype() : get_autocast_cpu_dtype();
}

template <typename Kind>
void set_type(Kind device, torch::ScalarType type) {
  if constexpr (requires { set_autocast_dtype(device, type); })
    set_autocast_dtype(device, type);
  else if (device == torch::kCUDA)
    set_autocast_gpu_dtype(type);
  else
    set_autocast_cpu_dtype(type);
}

#pragma GCC diagnostic pop

}  // namespace any_torch

}  // namespace

Precision parse_precision(const std::string& text) {
  if (text == "f32") return Precision::f32;
  if (text == "bf16") return Precision::bf16;
  throw ConfigError(
      fmt::format("--precision {}: there is no such precision; expected f32 or bf16", text));
}

Autocast::Autocast(torch::DeviceType device, Precision precision)
    : device_(device),
      enabled_before_(any_torch::enabled(device)),
      type_before_(any_torch::type(device)) {
  at::autocast::increment_nesting();
  any_torch::enable(device, precision == Precision::bf16);
  if (precision == Precision::bf16) any_torch::set_type(device, torch::kBFloat16);
}

// Copies of the parameters that the operators share are of this forward alone: the next one's
// parameters are others.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  any_torch::enable(device_, enabled_before_);
  any_torch::set_type(device_, type_before_);
}

}  // namespace skein
