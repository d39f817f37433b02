#include "optimize/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "core/rng.h"
#include "optimize/adamw.h"
#include "optimize/sgd.h"
#include "skein/error.h"

namespace skein {
namespace {

using Values = std::vector<float>;
constexpr std::size_t kSize = 1003;

Span span_of(Values& values) { return {values.data(), values.size()}; }

Values random_values(std::uint64_t seed, std::size_t count = kSize) {
  Rng rng(seed);
  Values values(count);
  for (float& value : values) value = static_cast<float>(rng.normal());
  return values;
}

Values gradients_of(std::int64_t step) { return random_values(1000 + static_cast<unsigned>(step)); }

using Rules = std::vector<GroupRule>;
const Rules kRules{{.range = {0, 10}, .weight_decay = 0.0},
                   {.range = {10, 90}, .lr_scale = 0.5, .weight_decay = 0.3},
                   {.range = {500, 3}, .lr_scale = 2},
                   {.range = {600, 7}, .frozen = true},
                   {.range = {700, 50}, .momentum = 0.5},
                   {.range = {1000, 3}, .lr_scale = 0, .weight_decay = 0.2}};

UpdateContext context_of(std::int64_t step, const Rules& rules = kRules) {
  return {.learning_rate = 0.05 / static_cast<double>(step),
          .gradient_scale = step % 2 == 0 ? 0.5F : 1.0F,
          .step = step,
          .groups = rules.empty() ? nullptr : std::make_shared<Groups>(kSize, rules)};
}

// One element under torch's rules, in double precision.
struct Reference {
  double p, first = 0, second = 0;

  void sgd(double g, double lr, double wd, double momentum, bool nesterov, bool first_step) {
    g += wd * p;
    if (momentum != 0) {
      first = first_step ? g : momentum * first + g;
      g = nesterov ? g + momentum * first : first;
    }
    p -= lr * g;
  }

  void adamw(double g, double lr, double wd, const AdamwOptions& options, double step) {
    p *= 1 - lr * wd;
    first = options.beta1 * first + (1 - options.beta1) * g;
    second = options.beta2 * second + (1 - options.beta2) * g * g;
    const double m = first / (1 - std::pow(options.beta1, step));
    const double v = second / (1 - std::pow(options.beta2, step));
    p -= lr * m / (std::sqrt(v) + options.epsilon);
  }
};

GroupRule rule_at(const Rules& rules, std::size_t element) {
  for (const GroupRule& rule : rules)
    if (rule.range.offset <= element && element < rule.range.end()) return rule;
  return {};
}

constexpr std::int64_t kSteps = 60;

Values train(Optimizer& optimizer, std::int64_t from = 1, std::int64_t to = kSteps, Values p = {},
             const Rules& rules = kRules) {
  if (p.empty()) p = random_values(1);
  for (std::int64_t step = from; step <= to; ++step) {
    Values g = gradients_of(step);
    optimizer.update({0, kSize}, span_of(p), span_of(g), context_of(step, rules));
    EXPECT_EQ(g, Values(kSize, 0.0F)) << "gradients are left zero";
  }
  return p;
}

// Float32 rounding over kSteps steps of size about 0.05: a few units in the last place of values of
// order 1.
constexpr double kTolerance = 3e-6;

void expect_near(const Values& result, const std::vector<Reference>& expected) {
  for (std::size_t i = 0; i < kSize; ++i)
    ASSERT_NEAR(result[i], expected[i].p, kTolerance * (1 + std::abs(expected[i].p))) << i;
}

std::vector<Reference> references() {
  std::vector<Reference> result;
  for (const float p : random_values(1)) result.push_back({p});
  return result;
}

void compare_sgd(const SgdOptions& options, const Rules& rules) {
  Sgd optimizer(kSize, options);
  std::vector<Reference> expected = references();
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const Values g = gradients_of(step);
    const UpdateContext context = context_of(step, rules);
    for (std::size_t i = 0; i < kSize; ++i) {
      const GroupRule rule = rule_at(rules, i);
      if (rule.frozen) continue;
      expected[i].sgd(static_cast<double>(g[i]) * context.gradient_scale,
                      context.learning_rate * rule.lr_scale,
                      rule.weight_decay.value_or(options.weight_decay),
                      rule.momentum.value_or(options.momentum), options.nesterov, step == 1);
    }
  }
  expect_near(train(optimizer, 1, kSteps, {}, rules), expected);
}

TEST(Sgd, EqualsTheDefinition) {
  compare_sgd({}, {});
  compare_sgd({.weight_decay = 0.1}, {});
  compare_sgd({.momentum = 0.9}, {});
  compare_sgd({.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, {});
  compare_sgd({.momentum = 0.9, .weight_decay = 0.1}, kRules);
  compare_sgd({.weight_decay = 0.1, .groups_have_momentum = true}, kRules);
}

void compare_adamw(const AdamwOptions& options, const Rules& rules) {
  Adamw optimizer(kSize, options);
  std::vector<Reference> expected = references();
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const Values g = gradients_of(step);
    const UpdateContext context = context_of(step, rules);
    for (std::size_t i = 0; i < kSize; ++i) {
      const GroupRule rule = rule_at(rules, i);
      if (rule.frozen) continue;
      expected[i].adamw(
          static_cast<double>(g[i]) * context.gradient_scale, context.learning_rate * rule.lr_scale,
          rule.weight_decay.value_or(options.weight_decay), options, static_cast<double>(step));
    }
  }
  expect_near(train(optimizer, 1, kSteps, {}, rules), expected);
}

TEST(Adamw, EqualsTheDefinition) {
  compare_adamw({}, {});
  compare_adamw({.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.5}, {});
  compare_adamw({.weight_decay = 0.1}, kRules);
}

TEST(Adamw, LeavesTheArenasGapsZero) {
  Adamw optimizer(4, {});
  Values p(4, 0.0F), g(4, 0.0F);
  optimizer.update({0, 4}, span_of(p), span_of(g), {.learning_rate = 0.1});
  EXPECT_EQ(p, Values(4, 0.0F));
}

using Make = std::function<std::unique_ptr<Optimizer>()>;

struct Kind {
  const char* name;
  Make make;
};

std::vector<Kind> kinds() {
  return {{"Plain", [] { return std::make_unique<Sgd>(kSize, SgdOptions{.weight_decay = 0.1}); }},
          {"Nesterov",
           [] {
             return std::make_unique<Sgd>(
                 kSize, SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
           }},
          {"Adamw", [] { return std::make_unique<Adamw>(kSize, AdamwOptions{}); }}};
}

class AnyOptimizer : public testing::TestWithParam<Kind> {};

// [0, kSize) cut at random places, some of them equal, in random order.
std::vector<Range> random_pieces(Rng& rng) {
  std::vector<std::size_t> cuts{0, kSize};
  for (int i = 0; i < 12; ++i) cuts.push_back(rng.below(kSize + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> pieces;
  for (const std::uint32_t i : rng.permutation(static_cast<std::uint32_t>(cuts.size() - 1)))
    pieces.push_back({cuts[i], cuts[i + 1] - cuts[i]});
  return pieces;
}

TEST_P(AnyOptimizer, PiecesInAnyOrderGiveTheBitsOfTheWhole) {
  const auto whole = GetParam().make(), split = GetParam().make();
  const Values expected = train(*whole);
  Rng rng(7);
  Values p = random_values(1);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    Values g = gradients_of(step);
    for (const Range& piece : random_pieces(rng))
      split->update(piece, span_of(p), span_of(g), context_of(step));
    ASSERT_EQ(g, Values(kSize, 0.0F));
  }
  EXPECT_EQ(p, expected);
}

TEST_P(AnyOptimizer, TouchesOnlyItsRange) {
  const auto optimizer = GetParam().make();
  const Range range{95, 410};
  Values p = random_values(1), g = gradients_of(1);
  optimizer->update(range, span_of(p), span_of(g), context_of(1));
  const Values old_p = random_values(1), old_g = gradients_of(1);
  for (std::size_t i = 0; i < kSize; ++i) {
    const bool inside = range.offset <= i && i < range.end();
    ASSERT_EQ(g[i], inside ? 0.0F : old_g[i]) << i;
    ASSERT_EQ(p[i] == old_p[i], !inside) << i;
  }
}

TEST_P(AnyOptimizer, ShardsTogetherEqualTheWhole) {
  const auto whole = GetParam().make(), left = GetParam().make(), right = GetParam().make();
  left->own({{0, 300}, {300, 1}, {800, 203}});
  right->own({{301, 499}});
  Values p = random_values(1);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    Values g = gradients_of(step);
    left->update({0, 301}, span_of(p), span_of(g), context_of(step));  // across two owned ranges
    left->update({800, 203}, span_of(p), span_of(g), context_of(step));
    right->update({301, 499}, span_of(p), span_of(g), context_of(step));
  }
  EXPECT_EQ(p, train(*whole));
  for (auto& [name, state] : left->state()) EXPECT_EQ(state.count, 504u) << name;
  EXPECT_EQ(right->owned(), (std::vector<Range>{{301, 499}}));
}

TEST_P(AnyOptimizer, OwnKeepsValuesAndStartsNewOnesAtZero) {
  const auto optimizer = GetParam().make(), whole = GetParam().make();
  EXPECT_EQ(optimizer->owned(), (std::vector<Range>{{0, kSize}}));
  train(*optimizer, 1, 5);
  train(*whole, 1, 5);
  optimizer->own({{5, 20}, {40, 0}, {50, 100}});
  EXPECT_EQ(optimizer->owned(), (std::vector<Range>{{5, 20}, {50, 100}}));
  optimizer->own({{0, 10}, {20, 60}, {145, 10}});
  const auto full = whole->state();
  const auto kept = optimizer->state();
  ASSERT_EQ(kept.size(), full.size());
  for (const auto& [name, state] : kept) {
    ASSERT_EQ(state.count, 80u);
    std::size_t at = 0;
    for (const Range& range : optimizer->owned())
      for (std::size_t i = range.offset; i < range.end(); ++i, ++at) {
        const bool always = (i >= 5 && i < 25) || (i >= 50 && i < 150);
        ASSERT_EQ(state.host()[at], always ? full.at(name).host()[i] : 0.0F)
            << name << " of element " << i;
        ASSERT_EQ(state.host()[at] != 0.0F, always) << name << " of element " << i;
      }
  }
}

TEST_P(AnyOptimizer, StateWrittenBackContinuesWithTheSameBits) {
  const auto whole = GetParam().make(), before = GetParam().make(), after = GetParam().make();
  const Values half = train(*before, 1, 20);
  for (auto& [name, state] : before->state())
    std::copy(state.host().begin(), state.host().end(), after->state().at(name).host().begin());
  EXPECT_EQ(train(*after, 21, kSteps, half), train(*whole));
}

TEST_P(AnyOptimizer, UpdateOfWhatIsNotOwnedAborts) {
  const auto optimizer = GetParam().make();
  optimizer->own({{10, 20}});
  Values p(kSize), g(kSize);
  EXPECT_DEATH(optimizer->update({25, 10}, span_of(p), span_of(g), {}), "element 30 is not owned");
  EXPECT_DEATH(optimizer->update({0, 11}, span_of(p), span_of(g), {}), "element 0 is not owned");
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyOptimizer, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

TEST(Groups, DigestTellsRulesApart) {
  const auto digest = [](const GroupRule& rule) { return Groups(kSize, {rule}).digest(); };
  const GroupRule plain{.range = {5, 9}};
  EXPECT_EQ(digest(plain), digest(plain));
  EXPECT_NE(digest(plain), digest({.range = {5, 8}}));
  EXPECT_NE(digest(plain), digest({.range = {5, 9}, .lr_scale = 2}));
  EXPECT_NE(digest(plain), digest({.range = {5, 9}, .weight_decay = 0}));
  EXPECT_NE(digest({.range = {5, 9}, .momentum = 0}), digest({.range = {5, 9}, .weight_decay = 0}));
  EXPECT_NE(digest(plain), digest({.range = {5, 9}, .frozen = true}));
  EXPECT_NE(digest(plain), digest({.range = {5, 9}, .missed = 1}));
}

// What was frozen for the run's first thirty updates is updated as in a run that begins there.
TEST(Adamw, CountsTheUpdatesOfAGroupForItsBiasCorrection) {
  Adamw optimizer(kSize, {.weight_decay = 0.1}), fresh(kSize, {.weight_decay = 0.1});
  Values p = random_values(1), q = p, first(p);
  for (std::int64_t step = 1; step <= 40; ++step) {
    Rules rules{{.range = {100, 50}, .frozen = step <= 30}};
    if (step > 30) rules.front().missed = 30;
    UpdateContext context = context_of(step, rules);
    context.learning_rate = 0.01;
    Values g = gradients_of(step);
    optimizer.update({0, kSize}, span_of(p), span_of(g), context);
    if (step <= 30) {
      EXPECT_TRUE(std::equal(p.begin() + 100, p.begin() + 150, first.begin() + 100));
      continue;
    }
    UpdateContext anew{
        .learning_rate = 0.01, .gradient_scale = context.gradient_scale, .step = step - 30};
    Values h = gradients_of(step);
    fresh.update({0, kSize}, span_of(q), span_of(h), anew);
    EXPECT_TRUE(std::equal(p.begin() + 100, p.begin() + 150, q.begin() + 100)) << step;
    EXPECT_NE(p[99], q[99]);
  }
}

TEST(Sgd, StateExistsOnlyWithMomentum) {
  Sgd plain(kSize, {}), momentum(kSize, {.momentum = 0.9});
  EXPECT_TRUE(plain.state().empty());
  EXPECT_EQ(momentum.state().at("momentum").count, kSize);
}

TEST(Optimizers, RefuseOptionsOutsideTheirLimits) {
  EXPECT_THROW(Sgd(kSize, {.momentum = -0.1}), ConfigError);
  EXPECT_THROW(Sgd(kSize, {.weight_decay = -0.1}), ConfigError);
  EXPECT_THROW(Sgd(kSize, {.nesterov = true}), ConfigError);
  EXPECT_THROW(Groups(kSize, {{.range = {0, 1}, .weight_decay = -1.0}}), ConfigError);
  EXPECT_THROW(Groups(kSize, {{.range = {0, 1}, .lr_scale = std::nan("")}}), ConfigError);
  EXPECT_THROW(Groups(kSize, {{.range = {0, 1}, .momentum = -1.0}}), ConfigError);
  EXPECT_THROW(Adamw(kSize, {.beta1 = 1}), ConfigError);
  EXPECT_THROW(Adamw(kSize, {.beta2 = -0.5}), ConfigError);
  EXPECT_THROW(Adamw(kSize, {.epsilon = 0}), ConfigError);
  EXPECT_THROW(Adamw(kSize, {.epsilon = 1e-60}), ConfigError);
  try {
    Sgd(kSize, {.momentum = -0.1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "momentum is -0.1: expected a finite number, 0 or more");
  }
}

TEST(OptimizersDeathTest, RangesMustBeSortedDisjointAndInside) {
  EXPECT_DEATH(Groups(kSize, {{.range = {5, 5}}, {.range = {9, 5}}}), "after 10 in a plane");
  EXPECT_DEATH(Groups(kSize, {{.range = {kSize, 1}}}), "in a plane of 1003");
  Sgd optimizer(kSize, {.momentum = 0.9});
  EXPECT_DEATH(optimizer.own({{5, 5}, {9, 5}}), "after 10 in a plane");
  EXPECT_DEATH(optimizer.own({{1000, 4}}), "in a plane of 1003");
}

}  // namespace
}  // namespace skein
