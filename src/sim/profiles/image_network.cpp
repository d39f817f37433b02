#include "sim/profiles/image_network.h"

#include "core/check.h"

namespace skein::sim {
namespace {

std::int64_t positions(std::int64_t size, std::int64_t window, const Window& how) {
  const std::int64_t padding = how.padding == Window::kSame ? window / 2 : 0;
  const std::int64_t room = size + 2 * padding - window;
  SKEIN_CHECK(room >= 0, "a window of {} on {} elements", window, size);
  return room / how.stride + 1;
}

}  // namespace

void ImageNetwork::slide(const Window& window) {
  shape_.height = positions(shape_.height, window.height, window);
  shape_.width = positions(shape_.width, window.width, window);
}

void ImageNetwork::conv(const std::string& name, std::int64_t channels, const Window& window) {
  const std::int64_t products = shape_.channels * window.area();
  slide(window);
  shape_.channels = channels;
  layers_.push_back({name, {products * channels}, products * shape_.elements(), 0});
}

void ImageNetwork::norm(const std::string& name) {
  const std::int64_t channels = shape_.channels;
  layers_.push_back({name, {channels, channels}, 0, kNormalisation * shape_.elements()});
}

void ImageNetwork::norm_relu(const std::string& name) {
  norm(name);
  layers_.back().elementwise += kActivation * shape_.elements();
}

void ImageNetwork::conv_norm_relu(const std::string& conv_name, const std::string& norm_name,
                                  std::int64_t channels, const Window& window) {
  conv(conv_name, channels, window);
  norm_relu(norm_name);
}

void ImageNetwork::pool(const std::string& name, const Window& window) {
  slide(window);
  layers_.push_back({name, {}, 0, window.area() * shape_.elements()});
}

void ImageNetwork::pool_all(const std::string& name) {
  pool(name, {.height = shape_.height, .width = shape_.width, .padding = Window::kValid});
}

void ImageNetwork::add_relu(const std::string& name) {
  layers_.push_back({name, {}, 0, (kAddition + kActivation) * shape_.elements()});
}

void ImageNetwork::linear(const std::string& name, std::int64_t output_size) {
  SKEIN_CHECK(shape_.height == 1 && shape_.width == 1, "{} on an image of {} x {}", name,
              shape_.height, shape_.width);
  const std::int64_t weights = shape_.channels * output_size;
  layers_.push_back({name, {weights, output_size}, weights, kAddition * output_size});
  shape_.channels = output_size;
}

void ImageNetwork::concatenate(const std::vector<Branch>& branches) {
  SKEIN_CHECK(!branches.empty(), "nothing to concatenate");
  const Shape input = shape_;
  std::vector<Shape> outputs;
  for (const Branch& branch : branches) {
    shape_ = input;
    if (branch) branch();
    outputs.push_back(shape_);
  }
  shape_ = {0, outputs[0].height, outputs[0].width};
  for (const Shape& output : outputs) {
    SKEIN_CHECK(output.height == shape_.height && output.width == shape_.width,
                "branches of {} x {} and {} x {}", shape_.height, shape_.width, output.height,
                output.width);
    shape_.channels += output.channels;
  }
}

void ImageNetwork::shortcut_from(const Shape& input, const Branch& shortcut) {
  const Shape expected = shape_;
  shape_ = input;
  shortcut();
  SKEIN_CHECK(shape_ == expected, "a shortcut to {} channels of {} x {}, expected {} of {} x {}",
              shape_.channels, shape_.height, shape_.width, expected.channels, expected.height,
              expected.width);
}

}  // namespace skein::sim
