// Builds the architecture of a convolutional network while following the shape of a sample.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/profiles/architecture.h"

namespace skein::sim {

struct Shape {
  std::int64_t channels, height, width;

  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const Shape&) const = default;
};

// What a convolution or a pooling sees at once. kSame pads each side by half the window, rounded
// down; kValid does not pad.
struct Window {
  enum Padding { kSame, kValid };

  std::int64_t height, width, stride = 1;
  Padding padding = kSame;

  std::int64_t area() const { return height * width; }
};

// Every call appends one layer (conv_norm_relu() two) and moves on to its output.
class ImageNetwork {
 public:
  explicit ImageNetwork(Shape input) : shape_(input) {}

  const Shape& shape() const { return shape_; }

  void conv(const std::string& name, std::int64_t channels, const Window& window);  // no bias
  void norm(const std::string& name);
  void norm_relu(const std::string& name);
  void conv_norm_relu(const std::string& conv_name, const std::string& norm_name,
                      std::int64_t channels, const Window& window);
  void pool(const std::string& name, const Window& window);
  void pool_all(const std::string& name);                          // to 1 x 1
  void add_relu(const std::string& name);                          // a residual connection's end
  void linear(const std::string& name, std::int64_t output_size);  // with bias; after pool_all()

  // Runs each branch on the current output and goes on with their outputs one behind the other, as
  // channels. They must agree in height and width. An empty branch passes its input on.
  using Branch = std::function<void()>;
  void concatenate(const std::vector<Branch>& branches);

  // Runs `shortcut` on `input` instead of the current output, whose shape must be the result.
  void shortcut_from(const Shape& input, const Branch& shortcut);

  Architecture take() { return std::move(layers_); }

 private:
  void slide(const Window& window);

  Shape shape_;
  Architecture layers_;
};

}  // namespace skein::sim
