// Debian packages of this build are installed into a root of their own and used there; and so is a
// program that is built by g++ and pkg-config alone.
#include "installed.h"

namespace skein::testing {
namespace {

TEST(DebianPackages, AreInstalledUsedAndRemoved) {
  if (!std::string(SKEIN_TORCH_DIR).starts_with("/usr/"))
    GTEST_SKIP() << "packages are made with Debian's LibTorch; this is that of " << SKEIN_TORCH_DIR;
  if (!std::filesystem::exists(SKEIN_BUILD_DIR "/CPackConfig.cmake"))
    GTEST_SKIP() << "dpkg-shlibdeps is missing: this is not Debian, or dpkg-dev is not installed";
  const Folder folder;
  must({"env", "-C", SKEIN_BUILD_DIR, SKEIN_CPACK, "-G", "DEB", "-B", folder.path()});
  const std::string said = must({SKEIN_SOURCE_DIR "/tests/package/test.sh", folder.path()});
  EXPECT_NE(said.find(" used"), std::string::npos) << said;
  if (said.find("unpacked only") != std::string::npos) GTEST_SKIP() << said;
}

}  // namespace
}  // namespace skein::testing
