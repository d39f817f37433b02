#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/arena.h"
#include "core/rng.h"
#include "kernels/measure.h"
#include "kernels/stream.h"
#include "kernels/update.h"

namespace skein {
namespace {

// Values around a span that no kernel may touch.
constexpr float kGuard = 12345.0F;
constexpr std::size_t kMargin = 20;

// A vector that starts `shift` floats after a cache line, with guards on both sides.
class Vector {
 public:
  Vector(std::size_t count, std::size_t shift, std::uint64_t seed)
      : memory_(allocate_on_heap(count + shift + 2 * kMargin)),
        start_(kMargin + shift),
        count_(count) {
    for (float& value : memory_->span().host()) value = kGuard;
    Rng rng(seed);
    for (float& value : span().host()) value = static_cast<float>(rng.normal());
  }
  Span span() const { return memory_->span().at({start_, count_}); }
  std::vector<float> values() const { return {span().host().begin(), span().host().end()}; }
  bool guards_intact() const {
    const Span all = memory_->span();
    for (std::size_t i = 0; i < all.count; ++i)
      if ((i < start_ || i >= start_ + count_) && all.host()[i] != kGuard) return false;
    return true;
  }

 private:
  std::unique_ptr<Memory> memory_;
  std::size_t start_, count_;
};

struct Place {
  std::size_t count, shift;
};

class Kernels : public testing::TestWithParam<Place> {
 protected:
  // The k-th operand; each starts at another offset from a cache line unless the shift is 0.
  Vector make(std::uint64_t k) const {
    return {GetParam().count, GetParam().shift * (k + 1) % 16, 100 + k};
  }
};

// Every kernel is one rounding per operation, so equality is bit for bit.
void expect_each(const Vector& result, const std::function<float(std::size_t)>& expected) {
  const Span span = result.span();
  for (std::size_t i = 0; i < span.count; ++i)
    ASSERT_EQ(span.host()[i], expected(i)) << "element " << i;
  EXPECT_TRUE(result.guards_intact());
}

TEST_P(Kernels, Copy) {
  const Vector dst = make(0), src = make(1);
  copy(dst.span(), src.span());
  expect_each(dst, [&](std::size_t i) { return src.span().host()[i]; });
}

TEST_P(Kernels, Fill) {
  const Vector dst = make(0);
  for (const float value : {2.5F, 0.0F}) {
    fill(dst.span(), value);
    expect_each(dst, [&](std::size_t) { return value; });
  }
  fill(dst.span(), -0.0F);
  for (const float value : dst.span().host()) ASSERT_TRUE(std::signbit(value));
}

TEST_P(Kernels, Scale) {
  const Vector y = make(0);
  const auto old = y.values();
  scale(y.span(), 0.3F);
  expect_each(y, [&](std::size_t i) { return old[i] * 0.3F; });
}

TEST_P(Kernels, Add) {
  const Vector y = make(0), x = make(1);
  const auto old = y.values();
  add(y.span(), x.span());
  expect_each(y, [&](std::size_t i) { return old[i] + x.span().host()[i]; });
}

TEST_P(Kernels, Axpy) {
  const Vector y = make(0), x = make(1);
  const auto old = y.values();
  axpy(y.span(), 0.3F, x.span());
  expect_each(y, [&](std::size_t i) {
    const float product = 0.3F * x.span().host()[i];
    return old[i] + product;
  });
}

TEST_P(Kernels, AddDifference) {
  const Vector x = make(0), a = make(1), s = make(2);
  const auto old = x.values();
  add_difference(x.span(), a.span(), s.span());
  expect_each(x, [&](std::size_t i) { return old[i] + (a.span().host()[i] - s.span().host()[i]); });
}

TEST_P(Kernels, CopyToBothCopiesToBoth) {
  const Vector one = make(0), two = make(1), src = make(2);
  copy_to_both(one.span(), two.span(), src.span());
  expect_each(one, [&](std::size_t i) { return src.span().host()[i]; });
  expect_each(two, [&](std::size_t i) { return src.span().host()[i]; });
  EXPECT_EQ(src.values(), make(2).values());
}

TEST_P(Kernels, CopyScaled) {
  const Vector dst = make(0), src = make(1);
  copy_scaled(dst.span(), 0.3F, src.span());
  expect_each(dst, [&](std::size_t i) { return 0.3F * src.span().host()[i]; });
  EXPECT_EQ(src.values(), make(1).values());
}

// One pass has the bits of three: the mean, its distance, the difference.
TEST_P(Kernels, MoveByMeanHasTheBitsOfItsParts) {
  const Vector x = make(0), sum = make(1), s = make(2);
  const Vector mean = make(1), expected = make(0);
  scale(mean.span(), 0.3F);
  const double distance = squared_distance(s.span(), mean.span());
  add_difference(expected.span(), mean.span(), s.span());
  EXPECT_EQ(move_by_mean(x.span(), 0.3F, sum.span(), s.span()), distance);
  expect_each(x, [&](std::size_t i) { return expected.span().host()[i]; });
  EXPECT_EQ(sum.values(), make(1).values());
  EXPECT_EQ(s.values(), make(2).values());
}

TEST_P(Kernels, BecomeMeanHasTheBitsOfItsParts) {
  const Vector x = make(0), sum = make(1), mean = make(1);
  scale(mean.span(), 0.3F);
  const double distance = squared_distance(x.span(), mean.span());
  EXPECT_EQ(become_mean(x.span(), 0.3F, sum.span()), distance);
  expect_each(x, [&](std::size_t i) { return mean.span().host()[i]; });
  EXPECT_EQ(sum.values(), make(1).values());
}

TEST_P(Kernels, MixUsesTheOldValuesOfBoth) {
  const Vector x = make(0), y = make(1);
  const auto old_x = x.values(), old_y = y.values();
  const auto mixed = [](float a, float b) {
    const float first = 0.8F * a, second = 0.2F * b;
    return first + second;
  };
  mix(x.span(), y.span(), 0.8F, 0.2F);
  expect_each(x, [&](std::size_t i) { return mixed(old_x[i], old_y[i]); });
  // s x + c y: the same two products, and addition commutes.
  expect_each(y, [&](std::size_t i) { return mixed(old_y[i], old_x[i]); });
}

TEST_P(Kernels, SumKeepsTheOrderWhereverDstIsAmongTheSources) {
  for (const std::size_t count : {1u, 2u, 3u, 4u, 8u})
    for (std::size_t alias = 0; alias <= count; ++alias) {  // alias == count: dst is no source
      std::vector<Vector> sources;
      for (std::size_t k = 0; k < count; ++k) sources.push_back(make(k));
      const Vector apart = make(99);
      const Vector& dst = alias < count ? sources[alias] : apart;
      std::vector<float> expected = sources[0].values();
      for (std::size_t k = 1; k < count; ++k)
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] += sources[k].span().host()[i];
      std::vector<const float*> pointers;
      for (const Vector& source : sources) pointers.push_back(source.span().host().data());
      sum(dst.span(), pointers);
      ASSERT_EQ(dst.values(), expected) << count << " sources, dst is number " << alias;
      ASSERT_TRUE(dst.guards_intact());
      for (std::size_t k = 0; k < count; ++k)
        if (k != alias) {
          ASSERT_EQ(sources[k].values(), make(k).values()) << "source " << k << " changed";
        }
    }
}

TEST_P(Kernels, SquaredNormIsAccurateAndItsOrderIsFixed) {
  const Vector x = make(0);
  long double exact = 0;
  double lanes[32] = {};
  for (std::size_t i = 0; i < x.span().count; ++i) {
    const double value = x.span().host()[i];
    exact += static_cast<long double>(value) * value;
    lanes[i % 32] += value * value;
  }
  for (std::size_t width = 16; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  const double result = squared_norm(x.span());
  EXPECT_EQ(result, lanes[0]);
  EXPECT_NEAR(result, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
}

TEST_P(Kernels, SquaredDistanceIsAccurate) {
  const Vector x = make(0), y = make(1);
  long double exact = 0;
  for (std::size_t i = 0; i < x.span().count; ++i) {
    const auto apart = static_cast<long double>(x.span().host()[i]) - y.span().host()[i];
    exact += apart * apart;
  }
  EXPECT_NEAR(squared_distance(x.span(), y.span()), static_cast<double>(exact),
              1e-13 * static_cast<double>(exact));
  EXPECT_EQ(squared_distance(x.span(), x.span()), 0);
}

std::vector<Place> places() {
  std::vector<Place> result;
  for (const std::size_t count : {0, 1, 7, 16, 17, 1000, 100003})
    for (const std::size_t shift : {0, 1, 3}) result.push_back({count, shift});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Kernels, testing::ValuesIn(places()), [](const auto& info) {
  return std::to_string(info.param.count) + "Shift" + std::to_string(info.param.shift);
});

TEST(KernelsLarge, CopyAndSumPastTheCachesEqualTheOrdinaryOnes) {
  const std::size_t count = kStreamFloats + 21;  // neither aligned nor whole
  const Vector dst(count, 3, 1), a(count, 0, 2), b(count, 1, 3);
  copy(dst.span(), a.span());
  EXPECT_EQ(dst.values(), a.values());
  EXPECT_TRUE(dst.guards_intact());
  fill(dst.span(), 0);
  copy_to_both(dst.span(), b.span(), a.span());
  EXPECT_EQ(dst.values(), a.values());
  EXPECT_EQ(b.values(), a.values());
  EXPECT_TRUE(b.guards_intact());
  const std::vector<const float*> sources{a.span().host().data(), b.span().host().data()};
  sum(dst.span(), sources);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += dst.span().host()[i] != a.span().host()[i] + b.span().host()[i];
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(dst.guards_intact());
}

TEST(KernelsSpecial, SquaredNormNeitherOverflowsNorVanishes) {
  const Vector x(3, 0, 1);
  fill(x.span(), 1e30F);
  EXPECT_NEAR(squared_norm(x.span()) / 3e60, 1, 1e-6);
  fill(x.span(), 1e-30F);
  EXPECT_NEAR(squared_norm(x.span()) / 3e-60, 1, 1e-6);
  x.span().host()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(squared_norm(x.span())));
}

TEST(KernelsDeathTest, SpansThatDoNotFitAbort) {
  const Vector a(8, 0, 1), b(9, 0, 2);
  EXPECT_DEATH(copy(a.span(), b.span()), "8 and 9 elements");
  EXPECT_DEATH(add(a.span(), b.span()), "8 and 9 elements");
  EXPECT_DEATH(add_difference(a.span(), a.span(), b.span()), "8 and 9 elements");
  EXPECT_DEATH(sgd_update(a.span(), b.span(), {}), "8 and 9 elements");
  EXPECT_DEATH(sum(a.span(), std::span<const Span>{}), "no vectors");
  EXPECT_DEATH(scale({a.span().data, 8, Device::gpu}, 1), "memory of a device");
}

TEST(MeasureKernels, NamesEachKernelOnceWithPositiveRates) {
  const auto rates = measure_kernels(4096);
  std::vector<std::string> names;
  for (const KernelRate& rate : rates) {
    names.push_back(rate.kernel);
    EXPECT_EQ(rate.bytes, 4096u);
    EXPECT_GT(rate.bytes_per_second, 0) << rate.kernel;
    EXPECT_GT(rate.memcpy_bytes_per_second, 0) << rate.kernel;
    EXPECT_DOUBLE_EQ(rate.ratio(), rate.bytes_per_second / rate.memcpy_bytes_per_second);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_GE(names.size(), 9u);
}

}  // namespace
}  // namespace skein
