#include <fmt/format.h>

#include "sim/profiles/image_network.h"

namespace skein::sim {
namespace {

constexpr std::int64_t kGrowth = 32;
constexpr std::int64_t kBottleneck = 4 * kGrowth;

void dense_layer(ImageNetwork& net, const std::string& name) {
  net.concatenate({nullptr, [&] {
                     net.norm_relu(name + ".norm1");
                     net.conv(name + ".conv1", kBottleneck, {1, 1});
                     net.norm_relu(name + ".norm2");
                     net.conv(name + ".conv2", kGrowth, {3, 3});
                   }});
}

void transition(ImageNetwork& net, const std::string& name) {
  net.norm_relu(name + ".norm");
  net.conv(name + ".conv", net.shape().channels / 2, {1, 1});
  net.pool(name + ".pool", {2, 2, 2, Window::kValid});
}

}  // namespace

Architecture densenet201() {
  ImageNetwork net({3, 224, 224});
  net.conv_norm_relu("features.conv0", "features.norm0", 2 * kGrowth, {7, 7, 2});
  net.pool("features.pool0", {3, 3, 2});
  int block = 0;
  for (const int layers : {6, 12, 48, 32}) {
    if (block > 0) transition(net, fmt::format("features.transition{}", block));
    ++block;
    for (int layer = 1; layer <= layers; ++layer)
      dense_layer(net, fmt::format("features.denseblock{}.denselayer{}", block, layer));
  }
  net.norm_relu("features.norm5");
  net.pool_all("avgpool");
  net.linear("classifier", 1000);
  return net.take();
}

}  // namespace skein::sim
