#include "kernels/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "core/arena.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

namespace skein {
namespace {

using Vectors = KernelVectors;

}  // namespace

std::vector<KernelCase> kernel_cases() {
  constexpr float kSmall = 1e-6F;
  constexpr SgdFactors sgd{.learning_rate = kSmall, .momentum = 1};
  constexpr AdamwFactors adamw{.beta1 = 1,
                               .one_minus_beta1 = 0,
                               .beta2 = 1,
                               .one_minus_beta2 = 0,
                               .epsilon = kSmall,
                               .step_size = kSmall};
  const auto sum_of = [](const Vectors& v, std::size_t count) {
    sum(v[0], std::span(v).subspan(1, count));
  };
  return {
      {"copy", 2, [](const Vectors& v) { copy(v[0], v[1]); }},
      {"fill", 1, [](const Vectors& v) { fill(v[0], 1); }},
      {"fill with 0", 1, [](const Vectors& v) { fill(v[0], 0); }},
      {"scale", 2, [](const Vectors& v) { scale(v[0], 1); }},
      {"add", 3, [](const Vectors& v) { add(v[0], v[1]); }},
      {"axpy", 3, [](const Vectors& v) { axpy(v[0], kSmall, v[1]); }},
      {"sum of 2", 3, [=](const Vectors& v) { sum_of(v, 2); }},
      {"sum of 4", 5, [=](const Vectors& v) { sum_of(v, 4); }},
      {"add_difference", 4, [](const Vectors& v) { add_difference(v[0], v[1], v[2]); }},
      {"copy_to_both", 3, [](const Vectors& v) { copy_to_both(v[0], v[1], v[2]); }},
      {"move_by_mean", 4, [](const Vectors& v) { move_by_mean(v[0], 1, v[1], v[2]); }},
      {"become_mean", 3, [](const Vectors& v) { become_mean(v[0], 1, v[1]); }},
      {"mix", 4, [](const Vectors& v) { mix(v[0], v[1], 0.75F, 0.25F); }},
      {"squared_norm", 1,
       // The result must be used, or the call is not made.
       [](const Vectors& v) {
         const Figure norm = squared_norm(v[0]);
         if (v[0].device == Device::cpu)
           v[5].host()[0] = static_cast<float>(norm) > 0 ? 1.0F : 0.5F;
       }},
      {"sgd_update", 4, [=](const Vectors& v) { sgd_update(v[0], v[1], sgd); }},
      {"sgd_update, momentum", 6, [=](const Vectors& v) { sgd_update(v[0], v[1], v[2], sgd); }},
      {"adamw_update", 8, [=](const Vectors& v) { adamw_update(v[0], v[1], v[2], v[3], adamw); }},
  };
}

namespace {

double seconds(const KernelCase& item, const Vectors& vectors, std::size_t repeats) {
  Queue* const queue = current_queue();
  if (queue) queue->finish();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) item.run(vectors);
  if (queue) queue->finish();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(repeats);
}

// The fewest repetitions that the clock's resolution does not matter for.
std::size_t enough_repeats(const KernelCase& item, const Vectors& vectors) {
  constexpr double kEnough = 2e-3;
  std::size_t repeats = 1;
  while (seconds(item, vectors, repeats) * static_cast<double>(repeats) < kEnough) repeats *= 2;
  return repeats;
}

KernelRate measure(const KernelCase& item, const KernelCase& reference, const Vectors& vectors) {
  constexpr int kRounds = 9;
  const std::size_t repeats = enough_repeats(item, vectors);
  const std::size_t reference_repeats = enough_repeats(reference, vectors);
  double best = std::numeric_limits<double>::infinity(), reference_best = best;
  for (int round = 0; round < kRounds; ++round) {
    best = std::min(best, seconds(item, vectors, repeats));
    reference_best = std::min(reference_best, seconds(reference, vectors, reference_repeats));
  }
  const auto bytes = static_cast<double>(vectors[0].bytes());
  return {item.name, vectors[0].bytes(), item.moves * bytes / best,
          reference.moves * bytes / reference_best};
}

}  // namespace

std::vector<KernelRate> measure_kernels(std::size_t bytes, Queue* queue) {
  const OnQueue scope(queue);
  const std::size_t count = std::max<std::size_t>(bytes / sizeof(float), 1);
  std::array<std::unique_ptr<Memory>, std::tuple_size_v<Vectors>> memory;
  Vectors vectors;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    memory[i] = queue ? queue->allocate(count, Type::f32) : allocate_on_heap(count);
    vectors[i] = memory[i]->span();
    fill(vectors[i], 1);
  }
  const KernelCase reference{"memcpy", 2, [](const Vectors& v) {
                               if (v[0].device == Device::cpu)
                                 std::memcpy(v[0].data, v[5].data, v[0].bytes());
                               else
                                 copy(v[0], v[5]);
                             }};
  std::vector<KernelRate> rates;
  for (const KernelCase& item : kernel_cases()) rates.push_back(measure(item, reference, vectors));
  return rates;
}

}  // namespace skein
