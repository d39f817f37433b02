#include <fmt/format.h>

#include "sim/profiles/image_network.h"

namespace skein::sim {
namespace {

constexpr Window k1x1{1, 1}, k3x3{3, 3}, k1x7{1, 7}, k7x1{7, 1}, k1x3{1, 3}, k3x1{3, 1};
constexpr Window k3x3Valid{3, 3, 1, Window::kValid};
constexpr Window k3x3Halve{3, 3, 2, Window::kValid};

struct Conv {
  std::int64_t channels;
  Window window;
};

// The whole model: one member per kind of block, all of them called `name` and what is inside.
class Inception4 {
 public:
  Architecture build() {
    stem();
    for (const int index : {6, 7, 8, 9}) block_a(feature(index));
    reduction_a(feature(10));
    for (const int index : {11, 12, 13, 14, 15, 16, 17}) block_b(feature(index));
    reduction_b(feature(18));
    for (const int index : {19, 20, 21}) block_c(feature(index));
    net_.pool_all("avg_pool");
    net_.linear("last_linear", 1000);
    return net_.take();
  }

 private:
  using Branch = ImageNetwork::Branch;

  static std::string feature(int index) { return fmt::format("features.{}", index); }

  void conv(const std::string& name, const Conv& what) {
    net_.conv_norm_relu(name + ".conv", name + ".bn", what.channels, what.window);
  }

  Branch one(const std::string& name, const Conv& what) {
    return [=, this] { conv(name, what); };
  }

  Branch chain(const std::string& name, const std::vector<Conv>& convs) {
    return [=, this] {
      for (std::size_t i = 0; i < convs.size(); ++i) conv(fmt::format("{}.{}", name, i), convs[i]);
    };
  }

  Branch max_pool(const std::string& name) {
    return [=, this] { net_.pool(name, k3x3Halve); };
  }

  Branch pool_conv(const std::string& name, std::int64_t channels) {
    return [=, this] {
      net_.pool(name + ".0", k3x3);
      conv(name + ".1", {channels, k1x1});
    };
  }

  // A block whose end is split once more, into a 1 x 3 and a 3 x 1 convolution.
  Branch forked(const std::string& name, const std::vector<Conv>& convs) {
    return [=, this] {
      for (std::size_t i = 0; i < convs.size(); ++i) conv(fmt::format("{}_{}", name, i), convs[i]);
      const std::string last = fmt::format("{}_{}", name, convs.size());
      net_.concatenate({one(last + "a", {256, k1x3}), one(last + "b", {256, k3x1})});
    };
  }

  void stem() {
    conv(feature(0), {32, k3x3Halve});
    conv(feature(1), {32, k3x3Valid});
    conv(feature(2), {64, k3x3});
    net_.concatenate(
        {max_pool(feature(3) + ".maxpool"), one(feature(3) + ".conv", {96, k3x3Halve})});
    net_.concatenate(
        {chain(feature(4) + ".branch0", {{64, k1x1}, {96, k3x3Valid}}),
         chain(feature(4) + ".branch1", {{64, k1x1}, {64, k1x7}, {64, k7x1}, {96, k3x3Valid}})});
    net_.concatenate(
        {one(feature(5) + ".conv", {192, k3x3Halve}), max_pool(feature(5) + ".maxpool")});
  }

  void block_a(const std::string& name) {
    net_.concatenate({one(name + ".branch0", {96, k1x1}),
                      chain(name + ".branch1", {{64, k1x1}, {96, k3x3}}),
                      chain(name + ".branch2", {{64, k1x1}, {96, k3x3}, {96, k3x3}}),
                      pool_conv(name + ".branch3", 96)});
  }

  void reduction_a(const std::string& name) {
    net_.concatenate({one(name + ".branch0", {384, k3x3Halve}),
                      chain(name + ".branch1", {{192, k1x1}, {224, k3x3}, {256, k3x3Halve}}),
                      max_pool(name + ".branch2")});
  }

  void block_b(const std::string& name) {
    net_.concatenate({one(name + ".branch0", {384, k1x1}),
                      chain(name + ".branch1", {{192, k1x1}, {224, k1x7}, {256, k7x1}}),
                      chain(name + ".branch2",
                            {{192, k1x1}, {192, k7x1}, {224, k1x7}, {224, k7x1}, {256, k1x7}}),
                      pool_conv(name + ".branch3", 128)});
  }

  void reduction_b(const std::string& name) {
    net_.concatenate(
        {chain(name + ".branch0", {{192, k1x1}, {192, k3x3Halve}}),
         chain(name + ".branch1", {{256, k1x1}, {256, k1x7}, {320, k7x1}, {320, k3x3Halve}}),
         max_pool(name + ".branch2")});
  }

  void block_c(const std::string& name) {
    net_.concatenate({one(name + ".branch0", {256, k1x1}), forked(name + ".branch1", {{384, k1x1}}),
                      forked(name + ".branch2", {{384, k1x1}, {448, k3x1}, {512, k1x3}}),
                      pool_conv(name + ".branch3", 256)});
  }

  ImageNetwork net_{{3, 299, 299}};
};

}  // namespace

Architecture inceptionv4() { return Inception4().build(); }

}  // namespace skein::sim
