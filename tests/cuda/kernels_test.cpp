// Every kernel on a GPU gives the bits that it gives on the host.
#include "kernels/kernels.h"

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "core/rng.h"
#include "cuda/gpu.h"
#include "kernels/bf16.h"
#include "kernels/update.h"

namespace skein {
namespace {

using Vectors = std::array<Span, 5>;  // the last one of bf16

struct Case {
  const char* name;
  std::function<void(const Vectors&)> run;
};

std::vector<Case> cases() {
  const SgdFactors sgd{
      .learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 1e-3F, .gradient_scale = 0.25F};
  SgdFactors nesterov = sgd;
  nesterov.nesterov = true;
  const AdamwFactors adamw{.gradient_scale = 0.5F,
                           .decay = 0.999F,
                           .beta1 = 0.9F,
                           .one_minus_beta1 = 0.1F,
                           .beta2 = 0.99F,
                           .one_minus_beta2 = 0.01F,
                           .correction2_root = 0.3F,
                           .epsilon = 1e-8F,
                           .step_size = 0.01F};
  return {
      {"copy", [](const Vectors& v) { copy(v[0], v[1]); }},
      {"copy_to_both", [](const Vectors& v) { copy_to_both(v[0], v[1], v[2]); }},
      {"copy_scaled", [](const Vectors& v) { copy_scaled(v[0], 0.3F, v[1]); }},
      {"fill", [](const Vectors& v) { fill(v[0], 2.5F); }},
      {"clear", [](const Vectors& v) { fill(v[0], 0); }},
      {"scale", [](const Vectors& v) { scale(v[0], 0.7F); }},
      {"add", [](const Vectors& v) { add(v[0], v[1]); }},
      {"axpy", [](const Vectors& v) { axpy(v[0], -0.3F, v[1]); }},
      {"raise_to", [](const Vectors& v) { raise_to(v[0], 0.1F); }},
      {"sum of two",
       [](const Vectors& v) {
         sum(v[0], std::array{v[1], v[2]});
       }},
      {"sum into the third",
       [](const Vectors& v) {
         sum(v[2], std::array{v[0], v[1], v[2], v[3]});
       }},
      {"sum of twenty",
       [](const Vectors& v) {
         std::vector<Span> all;
         for (std::size_t i = 0; i < 20; ++i) all.push_back(v[i % 4]);
         sum(v[3], all);
       }},
      {"add_difference", [](const Vectors& v) { add_difference(v[0], v[1], v[2]); }},
      {"mix", [](const Vectors& v) { mix(v[0], v[1], 0.8F, 0.2F); }},
      {"move_by_mean", [](const Vectors& v) { move_by_mean(v[0], 0.25F, v[1], v[2]); }},
      {"become_mean", [](const Vectors& v) { become_mean(v[0], 0.25F, v[1]); }},
      {"sgd", [=](const Vectors& v) { sgd_update(v[0], v[1], sgd); }},
      {"sgd with momentum", [=](const Vectors& v) { sgd_update(v[0], v[1], v[2], sgd); }},
      {"nesterov", [=](const Vectors& v) { sgd_update(v[0], v[1], v[2], nesterov); }},
      {"adamw",
       [=](const Vectors& v) {
         mix(v[3], v[2], 0.5F, 0.5F);
         raise_to(v[3], 0);  // of squares
         adamw_update(v[0], v[1], v[2], v[3], adamw);
       }},
      {"to_bf16", [](const Vectors& v) { to_bf16(v[4], v[0]); }},
      {"from_bf16",
       [](const Vectors& v) {
         to_bf16(v[4], v[0]);
         from_bf16(v[1], v[4]);
       }},
      {"add_bf16",
       [](const Vectors& v) {
         to_bf16(v[4], v[0]);
         add_bf16(v[1], v[4]);
       }},
      {"round_to_bf16", [](const Vectors& v) { round_to_bf16(v[0]); }},
      {"restore_rounded",
       [](const Vectors& v) {
         copy(v[1], v[0]);
         round_to_bf16(v[0]);
         restore_rounded(v[0], v[1]);
       }},
  };
}

// Numbers of all sizes, with what breaks careless arithmetic among them.
void draw(std::span<float> values, std::uint64_t seed) {
  constexpr std::array<float, 6> kOdd{
      0.0F, -0.0F, 1e-40F, 3e38F, std::numeric_limits<float>::infinity(), -1e-45F};
  Rng rng(seed);
  for (float& value : values) {
    value = static_cast<float>(rng.normal() * std::exp(4 * rng.normal()));
    if (rng.below(50) == 0) value = kOdd[rng.below(kOdd.size())];
  }
}

// The first element whose bits differ, or their count. Not-a-numbers are alike: which of them comes
// of an invalid operation is each processor's own.
std::size_t first_difference(Span one, Span other) {
  const auto differ = [&](std::size_t i) {
    const auto a = one.at({i, 1}).host_bytes(), b = other.at({i, 1}).host_bytes();
    if (std::ranges::equal(a, b)) return false;
    return one.type != Type::f32 || !std::isnan(one.host()[i]) || !std::isnan(other.host()[i]);
  };
  std::size_t i = 0;
  while (i < one.count && !differ(i)) ++i;
  return i;
}

// Vectors of `count` elements that start `shift` elements after an aligned one, on both sides.
struct Operands {
  Operands(std::size_t count, std::size_t shift,
           const std::function<std::unique_ptr<Memory>(std::size_t, Type)>& allocate) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Type type = i == 4 ? Type::bf16 : Type::f32;
      memory[i] = allocate(count + 2 * kMargin, type);
      all[i] = memory[i]->span();
      values[i] = all[i].at({kMargin + shift * (i + 1) % 4, count});
    }
  }
  static constexpr std::size_t kMargin = 8;
  std::array<std::unique_ptr<Memory>, 5> memory;
  Vectors all, values;
};

class CudaKernels : public OnAGpu {
 protected:
  void compare(std::size_t count, std::size_t shift) {
    for (const Case& each : cases()) {
      const Operands host(count, shift,
                          [](std::size_t n, Type type) { return allocate_on_heap_of(type, n); });
      const OnQueue scope(&queue());
      const Operands device(count, shift,
                            [&](std::size_t n, Type type) { return queue().allocate(n, type); });
      for (std::size_t i = 0; i < 4; ++i) {
        draw(host.all[i].host(), 10 * count + i);
        copy(device.all[i], host.all[i]);
      }
      each.run(host.values);
      each.run(device.values);
      for (std::size_t i = 0; i < host.all.size(); ++i) {
        const auto back = allocate_on_heap_of(host.all[i].type, host.all[i].count);
        copy(back->span(), device.all[i]);
        queue().finish();
        const std::size_t differs = first_difference(host.all[i], back->span());
        ASSERT_EQ(differs, host.all[i].count)
            << each.name << ": vector " << i << " differs there, count " << count << ", shift "
            << shift;
      }
    }
  }
};

TEST_F(CudaKernels, HaveTheBitsOfTheHost) {
  for (const std::size_t count : {1UL, 3UL, 4UL, 255UL, 1024UL, 100003UL, (1UL << 20) + 5})
    for (const std::size_t shift : {0UL, 1UL}) compare(count, shift);
}

TEST_F(CudaKernels, NothingIsNothing) {
  const OnQueue scope(&queue());
  const auto memory = queue().allocate(0, Type::f32);
  fill(memory->span(), 1);
  copy(memory->span(), memory->span());
  const Figure norm = squared_norm(memory->span());
  queue().finish();
  EXPECT_EQ(static_cast<double>(norm), 0);
}

TEST_F(CudaKernels, ReachesElementsBeyondFourBillion) {
  constexpr std::size_t kCount = (std::size_t{1} << 32) + 1027;
  const CudaDevice device = cuda_devices().front();
  if (device.free < 2 * kCount * sizeof(float))
    GTEST_SKIP() << "two vectors of 17 GB each do not fit the GPU's free memory";
  const OnQueue scope(&queue());
  const auto x = queue().allocate(kCount, Type::f32), y = queue().allocate(kCount, Type::f32);
  fill(x->span(), 1);
  axpy(y->span(), 2, x->span());
  std::array<float, 3> last{};
  copy(Span{last.data(), last.size()}, y->span().at({kCount - last.size(), last.size()}));
  const Figure norm = squared_norm(y->span());
  queue().finish();
  EXPECT_EQ(last[2], 2);
  EXPECT_EQ(static_cast<double>(norm), 4.0 * static_cast<double>(kCount));
}

TEST_F(CudaKernels, NormsAreAccurateAndRepeatable) {
  const OnQueue scope(&queue());
  for (const std::size_t count : {1UL, 5UL, 4096UL, 1000003UL}) {
    const auto x = allocate_on_heap(count), y = allocate_on_heap(count);
    Rng rng(count);
    for (float& value : x->span().host()) value = static_cast<float>(rng.normal());
    for (float& value : y->span().host()) value = static_cast<float>(rng.normal());
    const auto dx = queue().allocate(count, Type::f32), dy = queue().allocate(count, Type::f32);
    copy(dx->span(), x->span());
    copy(dy->span(), y->span());
    const Figure norm = squared_norm(dx->span()), again = squared_norm(dx->span());
    const Figure distance = squared_distance(dx->span(), dy->span());
    queue().finish();
    const double expected = squared_norm(x->span());
    EXPECT_NEAR(static_cast<double>(norm), expected, 1e-12 * expected);
    EXPECT_EQ(static_cast<double>(norm), static_cast<double>(again));
    const double expected_distance = squared_distance(x->span(), y->span());
    EXPECT_NEAR(static_cast<double>(distance), expected_distance, 1e-12 * expected_distance);
  }
}

}  // namespace
}  // namespace skein
