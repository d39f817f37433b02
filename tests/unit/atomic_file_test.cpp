// Files that appear whole, and what is never replaced by one.
#include "core/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <thread>

#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

class AtomicFiles : public ::testing::Test {
 protected:
  AtomicFiles() {
    std::string name = (fs::temp_directory_path() / "skein-files-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~AtomicFiles() override { fs::remove_all(folder); }

  static std::string contents(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  fs::path folder;
};

TEST_F(AtomicFiles, ReplaceARegularFile) {
  std::ofstream(folder / "a") << "before";
  {
    AtomicFile unfinished(folder / "a");
    unfinished.write("half", 4);
    EXPECT_EQ(contents(folder / "a"), "before");
  }
  EXPECT_EQ(contents(folder / "a"), "before");
  EXPECT_EQ(entries(), 1u);
  write_whole(folder / "a", "after");
  EXPECT_EQ(contents(folder / "a"), "after");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(AtomicFiles, ReplaceTheTargetOfALinkAndKeepTheLink) {
  fs::create_directory(folder / "there");
  std::ofstream(folder / "there/file") << "before";
  fs::create_symlink("there/file", folder / "one");
  fs::create_symlink("one", folder / "two");
  fs::create_symlink(folder / "there/new", folder / "dangling");
  for (const char* name : {"two", "dangling"}) {
    EXPECT_TRUE(appears_by_rename(folder / name));
    write_whole(folder / name, name);
    EXPECT_TRUE(fs::is_symlink(folder / name));
    EXPECT_EQ(contents(folder / name), name);
  }
  EXPECT_TRUE(fs::is_symlink(folder / "one"));
  EXPECT_EQ(contents(folder / "there/file"), "two");
  EXPECT_EQ(contents(folder / "there/new"), "dangling");
}

TEST_F(AtomicFiles, RefuseLinksWithoutAnEnd) {
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  try {
    write_whole(folder / "a", "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find((folder / "a").string()), std::string::npos);
  }
  EXPECT_TRUE(fs::is_symlink(folder / "a"));
}

TEST_F(AtomicFiles, WriteToANamedPipeAndLeaveIt) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder / "link");
  const std::string text(1 << 20, 'x');  // more than a pipe holds
  for (const char* name : {"pipe", "link"}) {
    EXPECT_FALSE(appears_by_rename(folder / name));
    std::string read;
    std::thread reader([&] { read = contents(folder / "pipe"); });
    write_whole(folder / name, text);
    reader.join();
    EXPECT_EQ(read, text);
    EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(entries(), 2u);
}

TEST_F(AtomicFiles, RefuseAPipeThatNobodyReads) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  try {
    AtomicFile(folder / "pipe", std::chrono::milliseconds(1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nobody has opened this pipe"), std::string::npos);
  }
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
}

TEST_F(AtomicFiles, WriteToADeviceAndLeaveIt) {
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    GTEST_SKIP() << "a device can only be made by root";
  if (const int opened = ::open((folder / "null").c_str(), O_WRONLY | O_CLOEXEC); opened >= 0)
    ::close(opened);
  else
    GTEST_SKIP() << "this file system has no devices (nodev)";
  fs::create_symlink("null", folder / "link");
  for (const char* name : {"null", "link"}) {
    EXPECT_FALSE(appears_by_rename(folder / name));
    write_whole(folder / name, "gone");
  }
  EXPECT_TRUE(fs::is_character_file(fs::symlink_status(folder / "null")));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(entries(), 2u);
}

// As a shell's `>file` leaves standard output: whoever has it open goes on behind the document.
TEST_F(AtomicFiles, WriteToAnOpenDescriptorWhereItStands) {
  const fs::path file = folder / "file";
  const FileDescriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(opened.valid());
  ASSERT_EQ(::write(opened.get(), "one ", 4), 4);
  const std::string number = std::to_string(opened.get());
  fs::create_symlink("/dev/fd/" + number, folder / "link");
  for (const fs::path& path :
       {fs::path("/dev/fd/" + number), fs::path("/proc/self/fd/" + number), folder / "link"}) {
    EXPECT_EQ(own_descriptor(path), opened.get()) << path;
    EXPECT_FALSE(appears_by_rename(path)) << path;
    write_whole(path, "two ");
  }
  ASSERT_EQ(::write(opened.get(), "three", 5), 5);
  EXPECT_EQ(contents(file), "one two two two three");
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(own_descriptor(file), -1);
  EXPECT_THROW(write_whole("/dev/fd/987654", "x"), Error);
}

TEST_F(AtomicFiles, RefuseAFolder) {
  EXPECT_THROW(write_whole(folder, "x"), Error);
  EXPECT_TRUE(fs::is_directory(folder));
}

}  // namespace
}  // namespace skein
