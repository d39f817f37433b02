#include <fmt/format.h>

#include "sim/profiles/image_network.h"

namespace skein::sim {
namespace {

constexpr std::int64_t kExpansion = 4;

void bottleneck(ImageNetwork& net, const std::string& name, std::int64_t width,
                std::int64_t stride) {
  const Shape input = net.shape();
  const std::int64_t channels = width * kExpansion;
  net.conv_norm_relu(name + ".conv1", name + ".bn1", width, {1, 1});
  net.conv_norm_relu(name + ".conv2", name + ".bn2", width, {3, 3, stride});
  net.conv(name + ".conv3", channels, {1, 1});
  net.norm(name + ".bn3");
  if (net.shape() != input)
    net.shortcut_from(input, [&] {
      net.conv(name + ".downsample.0", channels, {1, 1, stride});
      net.norm(name + ".downsample.1");
    });
  net.add_relu(name + ".relu");
}

}  // namespace

Architecture resnet50() {
  ImageNetwork net({3, 224, 224});
  net.conv_norm_relu("conv1", "bn1", 64, {7, 7, 2});
  net.pool("maxpool", {3, 3, 2});
  std::int64_t width = 64;
  int stage = 0;
  for (const int blocks : {3, 4, 6, 3}) {
    ++stage;
    for (int block = 0; block < blocks; ++block)
      bottleneck(net, fmt::format("layer{}.{}", stage, block), width,
                 stage > 1 && block == 0 ? 2 : 1);
    width *= 2;
  }
  net.pool_all("avgpool");
  net.linear("fc", 1000);
  return net.take();
}

}  // namespace skein::sim
