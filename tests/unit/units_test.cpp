#include "core/units.h"

#include <gtest/gtest.h>

#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST(Units, ParsesWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("25MB"), 25'000'000u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1'610'612'736u);
  EXPECT_EQ(parse_bytes("4kib"), 4096u);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1gbit"), 125e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("200mbit"), 25e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1.25GB/s"), 1.25e9);
  EXPECT_EQ(parse_duration("40ms"), 40ms);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(parse_duration("0"), 0ns);
}

TEST(Units, RefusesTheRestAndSaysWhatIsAllowed) {
  for (const char* bad : {"", "MB", "-1MB", "25XB", "1e400", "nan", "0.5B", "25MB extra"})
    EXPECT_THROW(parse_bytes(bad), ConfigError) << bad;
  for (const char* bad : {"0gbit", "1", "fast", "-1gbit"})
    EXPECT_THROW(parse_bandwidth(bad), ConfigError) << bad;
  for (const char* bad : {"40", "ms", "-3ms", "40 parsecs", "1e30h"})
    EXPECT_THROW(parse_duration(bad), ConfigError) << bad;
  try {
    parse_duration("40");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "'40' is not a duration: expected a number with ns, us, ms, s, m or h, such as 40ms");
  }
}

TEST(Units, Prints) {
  EXPECT_EQ(print_bytes(26'214'400), "26.2 MB");
  EXPECT_EQ(print_bandwidth(125e6), "1 gbit");
  EXPECT_EQ(print_duration(40ms), "40 ms");
  EXPECT_EQ(print_duration(1500us), "1.5 ms");
  EXPECT_EQ(print_count(11'173'962), "11.2 M");
  EXPECT_EQ(print_count(12), "12");
}

}  // namespace
}  // namespace skein
