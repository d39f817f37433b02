// Starts a program for a test, collects what it prints and waits for its end, for a limited time.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace skein::testing {

// A folder that goes with the object.
class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "skein-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// More than a busy machine needs for anything that tests wait for. What takes as long hangs.
inline constexpr std::chrono::minutes kHangs{10};

// True as soon as `condition` holds, false after `limit`.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = kHangs) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

struct Finished {
  int code = -1;   // of an exit
  int signal = 0;  // or of a death by signal
  std::string out, err;
  std::chrono::milliseconds duration{};
};

class Process {
 public:
  using Environment = std::map<std::string, std::string>;

  // Runs `argv` in a process group of its own, with `environment` added to this one's.
  explicit Process(std::vector<std::string> argv, const Environment& environment = {})
      : begin_(std::chrono::steady_clock::now()) {
    std::vector<char*> pointers;
    for (std::string& word : argv) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    setpgid(0, 0);
    setenv("TMPDIR", folder_.path().c_str(), 1);  // what a failed run keeps goes with the test
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    redirect(folder_ / "out", STDOUT_FILENO);
    redirect(folder_ / "err", STDERR_FILENO);
    execvp(pointers[0], pointers.data());
    _exit(127);
  }

  ~Process() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const { return contents(folder_ / "out"); }
  std::string err() const { return contents(folder_ / "err"); }

  Finished wait(std::chrono::milliseconds limit = kHangs) {
    int status = 0;
    const bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit);
    EXPECT_TRUE(ended) << "still running after " << limit.count() << " ms\n" << err();
    Finished finished;
    finished.duration = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin_);
    finished.out = out();
    finished.err = err();
    if (!ended) return finished;
    pid_ = -1;
    if (WIFEXITED(status)) finished.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
    return finished;
  }

 private:
  static void redirect(const std::string& path, int descriptor) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
  }

  Folder folder_;
  std::chrono::steady_clock::time_point begin_;
  pid_t pid_ = -1;
};

// Runs the program to its end.
inline Finished run(std::vector<std::string> argv, const Process::Environment& environment = {}) {
  return Process(std::move(argv), environment).wait();
}

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

}  // namespace skein::testing
