#include "core/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace skein {
namespace {

std::uint32_t crc(std::string_view text) {
  Checksum checksum;
  checksum.add(text.data(), text.size());
  return checksum.sum().crc32c;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Checksum, IsTheKnownCrc32c) {
  EXPECT_EQ(crc(""), 0u);
  EXPECT_EQ(crc("123456789"), 0xe3069283u);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc(rising), 0x46dd794eu);
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * i % 251);
  for (const std::size_t piece : {1, 3, 7, 8, 9, 64, 999}) {
    Checksum checksum;
    for (std::size_t at = 0; at < text.size(); at += piece)
      checksum.add(text.data() + at, std::min(piece, text.size() - at));
    EXPECT_EQ(checksum.sum().crc32c, crc(text)) << piece;
    EXPECT_EQ(checksum.sum().bytes, text.size());
  }
}

TEST(Checksum, EveryFlippedBitShows) {
  std::string text(100, 'x');
  const std::uint32_t before = crc(text);
  for (std::size_t bit = 0; bit < 800; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(crc(text), before) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace skein
