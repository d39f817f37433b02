#include "core/block_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "core/rng.h"

namespace skein {
namespace {

constexpr std::size_t kPart = 1 << 16;

// Parts that nobody touches: addresses alone.
class Parts {
 public:
  BlockPool::Make make() {
    return [this](std::size_t bytes) {
      sizes_.push_back(bytes);
      next_ += (std::size_t{1} << 30);
      return reinterpret_cast<void*>(next_);
    };
  }
  const std::vector<std::size_t>& sizes() const { return sizes_; }

 private:
  std::uintptr_t next_ = 0;
  std::vector<std::size_t> sizes_;
};

TEST(BlockPool, BlocksDoNotOverlapAndLieInTheirParts) {
  BlockPool pool(kPart);
  Parts parts;
  Rng rng(3);
  struct Taken {
    std::byte* begin;
    std::size_t bytes;
  };
  std::vector<Taken> all;
  for (int i = 0; i < 3000; ++i) {
    if (!all.empty() && rng.below(3) == 0) {
      const std::size_t which = rng.below(all.size());
      pool.give_back(all[which].begin);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const std::size_t bytes = rng.below(2) == 0 ? rng.below(5000) : rng.below(10 * kPart);
    auto* const block = static_cast<std::byte*>(pool.take(bytes, parts.make()));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0U);
    const auto part = pool.part_of(block);
    ASSERT_TRUE(part);
    ASSERT_EQ(part->bytes, parts.sizes().at(part->number));
    ASSERT_EQ(part->bytes % kPart, 0U);
    ASSERT_LE(block + bytes, part->begin + part->bytes);
    for (const Taken& other : all)
      ASSERT_TRUE(block + bytes <= other.begin || other.begin + other.bytes <= block ||
                  bytes == 0 || other.bytes == 0);
    all.push_back({block, bytes});
  }
}

TEST(BlockPool, WhatWasGivenBackIsUsedAgain) {
  BlockPool pool(kPart);
  Parts parts;
  for (int i = 0; i < 100; ++i)
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{3000}, kPart, 3 * kPart + 1}) {
      void* const block = pool.take(bytes, parts.make());
      pool.give_back(block);
    }
  EXPECT_EQ(parts.sizes().size(), 4U);
}

TEST(BlockPool, WhatItDoesNotHoldHasNoPart) {
  BlockPool pool(kPart);
  Parts parts;
  EXPECT_FALSE(pool.part_of(&pool));
  auto* const block = static_cast<std::byte*>(pool.take(100, parts.make()));
  EXPECT_FALSE(pool.part_of(block + kPart));
  EXPECT_FALSE(pool.part_of(block - 1));
  EXPECT_DEATH(pool.give_back(block + 1), "nobody took");
}

TEST(BlockPool, APartThatCannotBeMadeLeavesThePoolAsItWas) {
  BlockPool pool(kPart);
  Parts parts;
  EXPECT_THROW(pool.take(100, [](std::size_t) -> void* { throw std::bad_alloc(); }),
               std::bad_alloc);
  EXPECT_NE(pool.take(100, parts.make()), nullptr);
}

}  // namespace
}  // namespace skein
