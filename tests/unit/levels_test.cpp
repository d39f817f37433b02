// What a fabric of two levels passes on to the two that it is made of.
#include "fabric/levels.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

using namespace std::chrono_literals;

class SignFabric final : public Fabric {
 public:
  SignFabric(Loop& loop, Time& sign) : Fabric(loop), sign_(sign) {}
  std::string name() const override { return "signs"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Time latest_sign() const override { return sign_; }
  void pass_on(Time sign) override { sign_ = std::max(sign_, sign); }

 private:
  Time& sign_;
};

// Without them a limit of silence is a hard time-out for whatever stands on this fabric.
TEST(LevelsFabric, ForwardsSignsOfProgress) {
  const SteadyClock clock;
  Loop loop(clock);
  Time whole{5s}, inside{7s};
  LevelsFabric both(std::make_unique<SignFabric>(loop, whole),
                    std::make_unique<SignFabric>(loop, inside), Hosts({0, 0}));
  EXPECT_EQ(both.latest_sign(), Time(7s));
  whole = Time(8s);
  EXPECT_EQ(both.latest_sign(), Time(8s));
  both.pass_on(Time(9s));
  EXPECT_EQ(whole, Time(9s));
  EXPECT_EQ(inside, Time(9s));

  Time only{5s};
  LevelsFabric alone(std::make_unique<SignFabric>(loop, only), nullptr, Hosts({0, 1}));
  EXPECT_EQ(alone.latest_sign(), Time(5s));
  alone.pass_on(Time(6s));
  EXPECT_EQ(only, Time(6s));
}

}  // namespace
}  // namespace skein
