#include "optimize/preview.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "optimize/adamw.h"
#include "optimize/sgd.h"

namespace skein {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 20) + 1003;  // more than a piece

std::vector<float> values(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(kCount);
  for (float& each : out) each = static_cast<float>(rng.uniform(-1, 1));
  return out;
}

Span over(std::vector<float>& values) { return {values.data(), values.size()}; }

std::vector<std::vector<float>> state_of(Optimizer& optimizer) {
  std::vector<std::vector<float>> all;
  for (const auto& [name, vector] : optimizer.state())
    all.emplace_back(vector.host().begin(), vector.host().end());
  return all;
}

// The update that follows a preview is the same as without one, and is what the preview said.
template <typename Make>
void expect_exact(const Make& make) {
  const auto optimizer = make();
  Preview preview(*optimizer, allocate_on_heap);
  auto parameters = values(1);
  for (std::int64_t step = 1; step <= 3; ++step) {
    auto gradients = values(10 + static_cast<std::uint64_t>(step)), same = gradients;
    auto ahead = parameters;
    const UpdateContext context{.learning_rate = 0.1, .gradient_scale = 0.5F, .step = step};
    const auto before = state_of(*optimizer);
    preview.update(over(ahead), over(same), context);
    ASSERT_EQ(state_of(*optimizer), before);
    EXPECT_EQ(same, std::vector<float>(kCount)) << "gradients are not zero";
    optimizer->update({0, kCount}, over(parameters), over(gradients), context);
    ASSERT_EQ(parameters, ahead);
    EXPECT_NE(ahead, values(1));
  }
}

TEST(Preview, IsTheNextUpdateAndChangesNoState) {
  expect_exact([] { return std::make_unique<Sgd>(kCount, SgdOptions{}); });
  expect_exact([] { return std::make_unique<Sgd>(kCount, SgdOptions{0.9, 0.01, true}); });
  expect_exact([] { return std::make_unique<Adamw>(kCount, AdamwOptions{}); });
}

}  // namespace
}  // namespace skein
