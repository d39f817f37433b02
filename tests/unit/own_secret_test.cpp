// The secret that a user's runs find without being told of one.
#include "runtime/own_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "skein/error.h"

namespace skein {
namespace {

class OwnSecret : public ::testing::Test {
 protected:
  OwnSecret() {
    home_ = (std::filesystem::temp_directory_path() / "skein-test-XXXXXX").string();
    if (mkdtemp(home_.data()) == nullptr) std::abort();
  }
  ~OwnSecret() override { std::filesystem::remove_all(home_); }

  std::string path() const {
    return own_secret_file(
        [this](const char* name) { return std::string(name) == "HOME" ? home_.c_str() : nullptr; });
  }

  static std::string contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string home_;
};

TEST_F(OwnSecret, IsMadeOnceAndReadByItsOwnerAlone) {
  EXPECT_EQ(path(), home_ + "/.skein/secret");
  const std::string secret = contents(path());
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(contents(path()), secret);
  struct stat facts {};
  ASSERT_EQ(::stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((home_ + "/.skein").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(OwnSecret, IsTheSameForAllThatComeAtOnce) {
  std::vector<std::string> found(16);
  std::vector<std::thread> workers;
  workers.reserve(found.size());
  for (std::string& each : found) workers.emplace_back([&] { each = contents(path()); });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), 1u);
  EXPECT_EQ(found.front().size(), 32u);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(home_ + "/.skein"))
    ++files;
  EXPECT_EQ(files, 1) << "nothing else is left";
}

TEST_F(OwnSecret, ThatCannotBeMadeIsAnErrorWithTheReason) {
  std::ofstream(home_ + "/.skein") << "no folder";
  try {
    path();
    FAIL();
  } catch (const ConfigError& error) {
    for (const char* part : {"/.skein/secret", "Not a directory", "--secret"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace skein
