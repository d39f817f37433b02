// The fuzz targets with their corpus, and with changes to it, under any compiler.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/rng.h"
#include "fuzz/targets.h"

namespace skein::fuzz {
namespace {

std::vector<std::vector<std::byte>> corpus_of(const std::string& target) {
  std::vector<std::vector<std::byte>> out;
  const std::filesystem::path folder = std::filesystem::path(SKEIN_FUZZ_CORPUS) / target;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    out.emplace_back(bytes, bytes + text.size());
  }
  return out;
}

TEST(Corpus, IsReadWithoutATrace) {
  for (const Target& target : targets()) {
    const auto corpus = corpus_of(target.name);
    EXPECT_GE(corpus.size(), 3u) << target.name;
    for (const auto& bytes : corpus) target.run(bytes);
    target.run({});
  }
}

TEST(Corpus, IsReadWithSomeBytesChangedAddedAndLeftOut) {
  Rng rng(11);
  for (const Target& target : targets()) {
    const auto corpus = corpus_of(target.name);
    const int rounds = std::string(target.name) == "connection" ? 300 : 3000;
    for (int round = 0; round < rounds; ++round) {
      auto bytes = corpus[rng.below(corpus.size())];
      const auto& other = corpus[rng.below(corpus.size())];
      for (std::uint64_t i = rng.below(6); i > 0 && !bytes.empty(); --i)
        bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.below(256));
      if (rng.below(3) == 0) bytes.resize(rng.below(bytes.size() + 1));
      if (rng.below(3) == 0) bytes.insert(bytes.end(), other.begin(), other.end());
      target.run(bytes);
    }
  }
}

}  // namespace
}  // namespace skein::fuzz
