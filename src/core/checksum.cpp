#include "core/checksum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/file_descriptor.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, the lowest bit first
constexpr std::size_t kSlices = 8;

// tables[k][b]: what byte b does to the state when k more bytes come after it, so that eight bytes
// can be looked up at once.
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = state;
  }
  for (std::size_t k = 1; k < kSlices; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

void Checksum::add(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  bytes_ += bytes;
  std::uint32_t state = state_;
  for (; bytes >= kSlices; bytes -= kSlices, next += kSlices) {
    const std::uint32_t low = state ^ (std::uint32_t{next[0]} | std::uint32_t{next[1]} << 8 |
                                       std::uint32_t{next[2]} << 16 | std::uint32_t{next[3]} << 24);
    state = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^
            kTables[4][low >> 24] ^ kTables[3][next[4]] ^ kTables[2][next[5]] ^
            kTables[1][next[6]] ^ kTables[0][next[7]];
  }
  for (; bytes > 0; --bytes, ++next) state = state >> 8 ^ kTables[0][(state ^ *next) & 0xff];
  state_ = state;
}

FileSum checksum_of(const std::filesystem::path& path) {
  const auto fail = [&] {
    throw Error(fmt::format("cannot read '{}': {}", path.string(), std::strerror(errno)));
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) fail();
  Checksum checksum;
  std::vector<char> piece(std::size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) return checksum.sum();
    checksum.add(piece.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace skein
