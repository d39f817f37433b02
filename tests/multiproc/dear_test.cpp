// `dear` is synchronous SGD: on real processes it has the bits of `allreduce`, whatever the module,
// the optimizer and the user's loop do while updates are on their way.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

// So slow that updates are on their way when forward begins: a bucket takes milliseconds.
constexpr const char* kSlowLink = "50e6";
constexpr const char* kNoLink = "0";

// The cases of programs/*_cases.cpp.
const Words kOptimizers{"momentum",   "nesterov",          "adamw",
                        "torch_adam", "two_hundred_steps", "two_hundred_of_sgd"};
const Words kModulesAndSteps{"back_to_front",     "tied_weights",  "reused_and_frozen",
                             "two_forwards",      "two_models",    "accumulation",
                             "missing_gradients", "uneven_batches"};
const Words kBetweenSteps{
    "evaluation",        "saving",        "other_reads",        "reads_of_two_threads",
    "cleared_gradients", "late_backward", "written_parameters", "the_end",
    "one_of_two_ends"};

// One run of dear_program: what each rank saw in each case under either strategy.
class Program {
 public:
  Program(int workers, const char* bytes_per_second, const Words& cases) : workers_(workers) {
    Words argv{kSkein, "run",        "-n",           std::to_string(workers),
               "--",   kDearProgram, folder_.path(), bytes_per_second};
    argv.insert(argv.end(), cases.begin(), cases.end());
    const Finished end = Process(argv).wait();
    EXPECT_EQ(end.code, 0) << end.err;
    std::istringstream lines(end.out);
    for (std::string line; std::getline(lines, line);) {
      const Json figures = Json::parse(line);
      figures_[{figures["case"], figures["strategy"]}] = figures;
    }
  }

  const Json& figures(const std::string& name, const std::string& strategy) const {
    return figures_.at({name, strategy});
  }

  std::vector<float> seen(const std::string& name, const std::string& strategy, int rank) const {
    const std::string bytes =
        contents(folder_ / (name + "." + strategy + "." + std::to_string(rank)));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }

  // What skein checkpoints says of what a case saved.
  std::string checkpoints(const std::string& name, const std::string& strategy) const {
    return Process({kSkein, "checkpoints", folder_ / (name + "." + strategy)}).wait().out;
  }

  void expect_same_bits(const std::string& name) const {
    for (int rank = 0; rank < workers_; ++rank) {
      const auto want = seen(name, "allreduce", rank), got = seen(name, "dear", rank);
      ASSERT_FALSE(want.empty()) << name;
      ASSERT_EQ(want.size(), got.size()) << name;
      const auto differ = std::mismatch(want.begin(), want.end(), got.begin()).first;
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << name << ", rank " << rank << ": differs from number " << differ - want.begin()
          << " on, of " << want.size();
      for (const float value : want) ASSERT_TRUE(std::isfinite(value)) << name;
    }
  }

  // Some read met an update on its way. Only dear has such.
  void expect_waits(const std::string& name) const {
    if (name != "saving") {
      EXPECT_GT(figures(name, "dear")["waits"], 0) << name << ": nothing was on its way";
    }
    EXPECT_EQ(figures(name, "allreduce")["waits"], 0) << name;
  }

 private:
  Folder folder_;
  int workers_;
  std::map<std::pair<std::string, std::string>, Json> figures_;
};

// The distance of the final parameters, which a case sees last, over their length.
double distance(const std::vector<float>& one, const std::vector<float>& two, std::size_t last) {
  double gap = 0, length = 0;
  for (std::size_t i = 1; i <= last; ++i) {
    const double a = one.at(one.size() - i), b = two.at(two.size() - i);
    gap += (a - b) * (a - b);
    length += a * a;
  }
  return std::sqrt(gap / length);
}

class Dear : public ::testing::TestWithParam<int> {
 protected:
  static void expect_allreduce(const Words& cases) {
    const Program program(GetParam(), kSlowLink, cases);
    if (HasFailure()) return;
    for (const std::string& name : cases) {
      program.expect_same_bits(name);
      program.expect_waits(name);
    }
  }
};

TEST_P(Dear, EqualsAllReduceWhateverTheModuleAndTheStep) { expect_allreduce(kModulesAndSteps); }

// The arena is laid out anew after the first step; of nine tensors only those of `middle` stay.
TEST_P(Dear, EqualsAllReduceWhenTheArenaIsReordered) {
  const Words cases{"scrambled", "scrambled_groups", "scrambled_torch_adam", "resuming"};
  const Program program(GetParam(), kSlowLink, cases);
  if (HasFailure()) return;
  for (const std::string& name : cases) {
    program.expect_same_bits(name);
    for (const char* strategy : {"allreduce", "dear"})
      EXPECT_EQ(program.figures(name, strategy)["reordered"], 7) << name << strategy;
  }
  const std::string list = program.checkpoints("resuming", "dear");
  EXPECT_NE(list.find("whole; case = resuming"), std::string::npos) << list;
}

// Only the order of a sum may differ, and a sum of two has none.
TEST_P(Dear, ReorderingTheArenaChangesNothingElse) {
  const Words orders{"scrambled", "scrambled_as_registered"};
  const Program program(GetParam(), kNoLink, orders);
  if (HasFailure()) return;
  for (const char* strategy : {"allreduce", "dear"}) {
    EXPECT_EQ(program.figures(orders[1], strategy)["reordered"], 0);
    const auto got = program.seen(orders[0], strategy, 0),
               want = program.seen(orders[1], strategy, 0);
    if (GetParam() == 2)
      EXPECT_TRUE(got == want) << strategy;
    else
      EXPECT_LE(distance(want, got, want.size()), 1e-6) << strategy;
  }
}

// bfloat16 on the wire: as exact as such gradients are, and the same whoever looks on the way.
TEST_P(Dear, HalfPrecisionTrainsLikeFloat32) {
  const Words cases{"momentum", "half", "half_evaluated", "half_resumed"};
  const Program program(GetParam(), kNoLink, cases);
  if (HasFailure()) return;
  for (const char* strategy : {"allreduce", "dear"}) {
    const auto parameters = program.figures("half", strategy)["parameters"].get<std::size_t>();
    const auto half = program.seen("half", strategy, 0);
    const double apart = distance(program.seen("momentum", strategy, 0), half, parameters);
    // Rounded gradients change little; dear takes them at weights that are off by up to 2^-8.
    EXPECT_LE(apart, std::string(strategy) == "dear" ? 1.0 / 256 : 2e-4) << strategy;
    EXPECT_GE(apart, 1e-7) << strategy << ": nothing was rounded";
    const auto looked = program.seen("half_evaluated", strategy, 0);
    EXPECT_EQ(distance(half, looked, parameters), 0) << strategy;
  }
}

TEST_P(Dear, EqualsAllReduceWhateverHappensBetweenSteps) { expect_allreduce(kBetweenSteps); }

TEST_P(Dear, EqualsAllReduceWithEveryOptimizer) { expect_allreduce(kOptimizers); }

// The elements of the optimizer's state on each worker: a part of its `vectors` vectors under dear.
void expect_parts(const Program& program, const std::string& name, double vectors) {
  const Json& dear = program.figures(name, "dear");
  const auto parts = dear["state"].get<std::vector<double>>();
  const double whole = vectors * dear["plane"].get<double>();
  // The shard of a bucket ends at a cache line.
  const double rounding = 16 * vectors * dear["buckets"].get<double>();
  for (const double part : parts)
    EXPECT_LE(part, whole / static_cast<double>(parts.size()) + rounding) << name;
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), whole) << name;
  for (const double part : program.figures(name, "allreduce")["state"].get<std::vector<double>>())
    EXPECT_EQ(part, whole) << name;
}

TEST_P(Dear, EqualsOneProcessWithTheWholeBatchOnAPartOfTheState) {
  const Words cases{"momentum", "nesterov", "adamw", "torch_adam"};
  const Program one(1, kNoLink, cases), many(GetParam(), kNoLink, cases);
  if (HasFailure()) return;
  for (const std::string& name : cases) {
    many.expect_same_bits(name);
    const auto parameters = one.figures(name, "dear")["parameters"].get<std::size_t>();
    ASSERT_GT(parameters, 30000U);
    EXPECT_LE(distance(one.seen(name, "dear", 0), many.seen(name, "dear", 0), parameters), 1e-6)
        << name;
  }
  expect_parts(many, "momentum", 1);
  expect_parts(many, "adamw", 2);
}

INSTANTIATE_TEST_SUITE_P(Workers, Dear, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::testing
