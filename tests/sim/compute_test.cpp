#include "sim/compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "skein/error.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

Layer layer(std::vector<std::int64_t> parameters, Duration forward, Duration backward) {
  return {"layer", std::move(parameters), forward, backward};
}

Profile profile_of(std::vector<Layer> layers) {
  Profile profile;
  profile.name = "hand";
  profile.batch = 4;
  profile.layers = std::move(layers);
  return profile;
}

Arena arena_of(const std::vector<std::size_t>& counts) {
  std::vector<Arena::Parameter> parameters;
  for (const std::size_t count : counts) parameters.push_back({"p", count});
  return {parameters, allocate_absent};
}

// The pieces when every tensor is a bucket; the last tensor comes first.
std::vector<ComputePlan::Piece> tensor_pieces(const Profile& profile, const Arena& arena) {
  return ComputePlan(profile, arena).by_bucket(BucketPlan(arena, Fusion::none()));
}

std::vector<Duration> forwards(const std::vector<ComputePlan::Piece>& pieces) {
  std::vector<Duration> times;
  for (const auto& piece : pieces) times.push_back(piece.forward);
  return times;
}

std::vector<Duration> backwards(const std::vector<ComputePlan::Piece>& pieces) {
  std::vector<Duration> times;
  for (const auto& piece : pieces) times.push_back(piece.backward);
  return times;
}

using Times = std::vector<Duration>;

Duration total(const Times& times) {
  return std::accumulate(times.begin(), times.end(), Duration(0));
}

// A layer needs both of its tensors before it begins, and gives both gradients when it ends.
TEST(ComputePlanTest, ALayersTimeIsThatOfItsLastTensor) {
  const auto pieces = tensor_pieces(profile_of({layer({32, 16}, 3ms, 5ms), layer({64}, 7ms, 11ms)}),
                                    arena_of({32, 16, 64}));
  EXPECT_EQ(forwards(pieces), (Times{7ms, 3ms, 0ms}));
  EXPECT_EQ(backwards(pieces), (Times{11ms, 5ms, 0ms}));
}

TEST(ComputePlanTest, ALayerWithoutTensorsFollowsTheLayerBeforeItAndDelaysItsGradients) {
  const auto pieces = tensor_pieces(profile_of({layer({32}, 3ms, 5ms), layer({}, 100ms, 200ms),
                                                layer({64}, 7ms, 11ms), layer({}, 1000ms, 2000ms)}),
                                    arena_of({32, 64}));
  EXPECT_EQ(forwards(pieces), (Times{1007ms, 103ms}));
  EXPECT_EQ(backwards(pieces), (Times{2011ms, 205ms}));
}

TEST(ComputePlanTest, BackwardOfWhatComesBeforeTheFirstTensorIsTheTail) {
  const Profile profile = profile_of({layer({}, 1ms, 2ms), layer({32}, 3ms, 5ms)});
  const Arena arena = arena_of({32});
  const ComputePlan plan(profile, arena);
  EXPECT_EQ(plan.backward_tail(), 2ms);
  const auto pieces = plan.by_bucket(BucketPlan(arena, Fusion::none()));
  EXPECT_EQ(forwards(pieces), (Times{4ms}));
  EXPECT_EQ(backwards(pieces), (Times{5ms}));
}

TEST(ComputePlanTest, BucketsAddUpTheirTensors) {
  const Profile profile =
      profile_of({layer({64}, 1ms, 10ms), layer({64}, 2ms, 20ms), layer({64}, 4ms, 40ms)});
  const Arena arena = arena_of({64, 64, 64});
  const BucketPlan plan(arena, Fusion::of(512));  // two tensors reach it
  ASSERT_EQ(plan.count(), 2);
  const auto pieces = ComputePlan(profile, arena).by_bucket(plan);
  EXPECT_EQ(forwards(pieces), (Times{6ms, 1ms}));
  EXPECT_EQ(backwards(pieces), (Times{60ms, 10ms}));
}

TEST(ComputePlanTest, OtherTensorsShareTheTotalsBySize) {
  const Profile profile = profile_of({layer({100}, 10ms, 20ms), layer({}, 2ms, 4ms)});
  const auto pieces = tensor_pieces(profile, arena_of({16, 48, 32}));
  EXPECT_EQ(forwards(pieces), (Times{4ms, 6ms, 2ms}));
  EXPECT_EQ(backwards(pieces), (Times{8ms, 12ms, 4ms}));
}

TEST(ComputePlanTest, NothingIsLostWhenTotalsAreSpread) {
  const Profile profile = profile_of({layer({1}, 1000003ns, 2000029ns)});
  const auto pieces = tensor_pieces(profile, arena_of({7, 11, 13, 17, 1}));
  EXPECT_EQ(total(forwards(pieces)), 1000003ns);
  EXPECT_EQ(total(backwards(pieces)), 2000029ns);
}

TEST(ComputePlanTest, NothingIsLostLayerByLayerInABuiltInModel) {
  const Profile profile = find_profile("resnet50");
  std::vector<std::size_t> counts;
  for (const Layer& each : profile.layers)
    for (const std::int64_t count : each.parameters)
      counts.push_back(static_cast<std::size_t>(count));
  const Arena arena = arena_of(counts);
  const ComputePlan plan(profile, arena);
  for (const Fusion& fusion : {Fusion::none(), Fusion()}) {
    const auto pieces = plan.by_bucket(BucketPlan(arena, fusion));
    EXPECT_EQ(total(forwards(pieces)), profile.forward());
    EXPECT_EQ(total(backwards(pieces)) + plan.backward_tail(), profile.backward());
  }
}

TEST(EmulatedProfile, IsAThirdForwardAndInProportionToSizes) {
  const Profile shape =
      profile_of({layer({50, 50}, 1ms, 1ms), layer({}, 9ms, 9ms), layer({300}, 1ms, 1ms)});
  const Profile emulated = emulated_profile(shape, 120ms, 32);
  EXPECT_EQ(emulated.batch, 32);
  ASSERT_EQ(emulated.layers.size(), 2u);
  EXPECT_EQ(emulated.layers[0].forward, 10ms);
  EXPECT_EQ(emulated.layers[1].forward, 30ms);
  EXPECT_EQ(emulated.layers[0].backward, 20ms);
  EXPECT_EQ(emulated.layers[1].backward, 60ms);
  EXPECT_EQ(emulated.parameters(), shape.parameters());
}

TEST(EmulatedProfile, TakesExactlyTheStepWithItsUpdate) {
  Profile shape = profile_of({layer({7}, 0s, 0s), layer({11}, 0s, 0s), layer({3}, 0s, 0s)});
  shape.update = 5ms;
  const Profile emulated = emulated_profile(shape, 1000001ns, 1);
  EXPECT_EQ(emulated.update, 0ns);
  EXPECT_EQ(emulated.forward() + emulated.backward(), 1000001ns);
  EXPECT_EQ(emulated.forward(), 333333ns);
}

}  // namespace
}  // namespace skein::sim
