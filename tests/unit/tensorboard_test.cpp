// Event files, read back by a reader that knows nothing of the writer.
#include "skein/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <map>

#include "core/checksum.h"
#include "multiproc/process.h"
#include "skein/error.h"

namespace skein {
namespace {

using testing::contents;
using testing::Folder;

std::uint64_t little_endian(const std::string& text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(text.at(at + static_cast<std::size_t>(i)));
  return value;
}

// As TensorFlow's record_reader unmasks it.
std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

std::uint32_t crc(const std::string& text) {
  Checksum sum;
  sum.add(text.data(), text.size());
  return sum.sum().crc32c;
}

std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < file.size();) {
    const auto size = static_cast<std::size_t>(little_endian(file, at, 8));
    EXPECT_EQ(unmasked(static_cast<std::uint32_t>(little_endian(file, at + 8, 4))),
              crc(file.substr(at, 8)));
    all.push_back(file.substr(at + 12, size));
    EXPECT_EQ(unmasked(static_cast<std::uint32_t>(little_endian(file, at + 12 + size, 4))),
              crc(all.back()));
    at += 16 + size;
  }
  return all;
}

// Fields of a message by number; what they hold as bytes.
std::multimap<int, std::string> fields(const std::string& text) {
  std::multimap<int, std::string> all;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text.at(at++));
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < text.size()) {
    const std::uint64_t key = varint();
    const int kind = int(key & 7);
    if (kind == 0) {
      all.emplace(int(key >> 3), std::to_string(varint()));
      continue;
    }
    const std::size_t size = kind == 1 ? 8 : kind == 5 ? 4 : static_cast<std::size_t>(varint());
    all.emplace(int(key >> 3), text.substr(at, size));
    at += size;
  }
  return all;
}

std::string only_file(const Folder& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    found.push_back(entry.path().string());
  EXPECT_EQ(found.size(), 1u);
  EXPECT_NE(found.at(0).find("events.out.tfevents."), std::string::npos);
  return contents(found.at(0));
}

TEST(TensorBoard, AReaderFindsEveryPointWithItsStep) {
  const Folder folder;
  {
    TensorBoardWriter writer(folder.path());
    for (int step = 0; step < 300; ++step) writer.scalar("loss", step, 1.0 / (1 + step));
    writer.scalar("loss", 300, std::nan(""));
    Record record;
    record.step = 1'000'000'000'000;
    record.learning_rate = 0.125;
    record.more["accuracy"] = 0.5;
    writer.write(record);
  }
  const auto all = records(only_file(folder));
  ASSERT_EQ(all.size(), 1u + 300 + 2) << "what is not a number is left out";
  EXPECT_EQ(fields(all[0]).find(3)->second, "brain.Event:2");
  const auto point = [&](std::size_t at) {
    auto event = fields(all[at]);
    auto value = fields(fields(event.find(5)->second).find(1)->second);
    const auto bits = static_cast<std::uint32_t>(little_endian(value.find(2)->second, 0, 4));
    return std::tuple(value.find(1)->second, event.find(2)->second, std::bit_cast<float>(bits));
  };
  EXPECT_EQ(point(300), std::tuple("loss", "299", float(1.0 / 300)));
  EXPECT_EQ(point(301), std::tuple("learning_rate", "1000000000000", 0.125f));
  EXPECT_EQ(point(302), std::tuple("accuracy", "1000000000000", 0.5f));
  const double wall = std::bit_cast<double>(little_endian(fields(all[1]).find(1)->second, 0, 8));
  EXPECT_NEAR(wall, double(::time(nullptr)), 60);
}

TEST(TensorBoard, AResumedRunSaysFromWhichStepItGoesOn) {
  const Folder folder;
  { TensorBoardWriter(folder.path(), 41); }
  const auto all = records(only_file(folder));
  ASSERT_EQ(all.size(), 2u);
  auto event = fields(all[1]);
  EXPECT_EQ(event.find(2)->second, "41");
  EXPECT_EQ(fields(event.find(7)->second).find(1)->second, "1") << "SessionLog.START";
}

TEST(TensorBoard, AFolderThatCannotBeIsAnError) {
  EXPECT_THROW(TensorBoardWriter("/proc/nobody/writes/here"), Error);
}

}  // namespace
}  // namespace skein
