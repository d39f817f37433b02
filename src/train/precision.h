// The precision of forward and loss.
#pragma once

#include <torch/torch.h>

#include <string>

namespace skein {

// bf16: operators that gain by it compute in bfloat16, as torch's autocast chooses them. Parameters
// and gradients are float32 in any case.
enum class Precision { f32, bf16 };

// "f32" or "bf16"; ConfigError for anything else.
Precision parse_precision(const std::string& text);

// For as long as it lives, operators of this thread on such a device have this precision. The
// earlier setting comes back. One inside another is allowed.
class Autocast {
 public:
  Autocast(torch::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool enabled_before_;
  torch::ScalarType type_before_;
};

}  // namespace skein
