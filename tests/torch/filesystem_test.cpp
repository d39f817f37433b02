// PyTorch's own builds of LibTorch export the std::filesystem of another compiler.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>

namespace skein {
namespace {

std::string library_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) == 0 ? "" : info.dli_fname;
}

TEST(Filesystem, ComesFromTheLibraryOfTheCompilerAndNotFromLibTorch) {
  std::filesystem::path (*current_path)() = &std::filesystem::current_path;
  void (*terminate)() = &std::terminate;
  const std::string standard_library = library_of(reinterpret_cast<void*>(terminate));
  ASSERT_NE(standard_library.find("libstdc++"), std::string::npos) << standard_library;
  EXPECT_EQ(library_of(reinterpret_cast<void*>(current_path)), standard_library);
}

}  // namespace
}  // namespace skein
