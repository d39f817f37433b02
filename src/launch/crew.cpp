#include "launch/crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/check.h"
#include "core/descriptor_limit.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::chrono::seconds kLongestFarewell{2};  // from SIGKILL to the end of all workers

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(fmt::format("cannot make a pipe: {}", system_error_text(errno)));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

pid_t fork_or_throw() {
  const pid_t pid = fork();
  if (pid < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
  return pid;
}

// glibc's own pidfd_open cannot be called from C++ before version 2.37.
FileDescriptor open_process(pid_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Between fork and exec only calls that are safe in a signal handler are allowed: this process may
// have had other threads, which may have held locks.
[[noreturn]] void guard(int lifeline, int announce) {
  if (setpgid(0, 0) != 0) _exit(1);  // else the last line would kill the launcher's own group
  const pid_t self = getpid();
  if (write(announce, &self, sizeof(self)) != static_cast<ssize_t>(sizeof(self))) _exit(1);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  char byte;
  while (read(lifeline, &byte, 1) < 0 && errno == EINTR) {
  }
  kill(0, SIGKILL);
  _exit(0);
}

[[noreturn]] void become(const WorkerStart& how, char* const* argv, char* const* environment,
                         pid_t group, pid_t launcher, int trouble) {
  const auto give_up = [&] {
    const int code = errno;
    (void)!write(trouble, &code, sizeof(code));
    _exit(127);
  };
  if (setpgid(0, group) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up();
  if (getppid() != launcher) _exit(127);  // it died before it could be watched
  if (dup2(how.input, 0) < 0 || dup2(how.output, 1) < 0 || dup2(how.error, 2) < 0) give_up();
  for (const int kept : how.keep_open)
    if (fcntl(kept, F_SETFD, 0) != 0) give_up();
  // A shell starts background jobs with SIGINT ignored. Here it is the launcher that decides who
  // hears of a Ctrl-C, so a worker without a handler of its own must end by it.
  ::signal(SIGINT, SIG_DFL);
  sigprocmask(SIG_SETMASK, &how.signal_mask, nullptr);
  execvpe(argv[0], argv, environment);
  give_up();
  __builtin_unreachable();
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

// The guardian is a grandchild that its parent has left: the children of this process are the
// workers, and nothing else for a user or a tool to mistake for one.
Crew::Crew() {
  Pipe pipe = make_pipe();
  Pipe announcement = make_pipe();
  const pid_t parent = fork_or_throw();
  if (parent == 0) {
    if (fork() != 0) _exit(0);
    pipe.write = FileDescriptor();
    guard(pipe.read.get(), announcement.write.get());
  }
  wait_for(parent);
  announcement.write = FileDescriptor();
  if (read(announcement.read.get(), &guardian_, sizeof(guardian_)) !=
      static_cast<ssize_t>(sizeof(guardian_)))
    throw Error("cannot start a process to watch over the workers");
  guardian_ended_ = open_process(guardian_);
  lifeline_ = std::move(pipe.write);
}

// A process in uninterruptible sleep, waiting for a device or a file server, does not end when it
// is killed, and may never do so.
Crew::~Crew() {
  signal(SIGKILL);
  const auto until = std::chrono::steady_clock::now() + kLongestFarewell;
  for (const Worker& worker : workers_)
    while (worker.pid > 0 && waitpid(worker.pid, nullptr, WNOHANG) == 0 &&
           std::chrono::steady_clock::now() < until) {
      pollfd ended{worker.ended.get(), POLLIN, 0};
      if (poll(&ended, 1, 20) > 0)
        poll(nullptr, 0, 1);  // a traced one may have ended, and not yet
                              // be there for waitpid()
    }
  pollfd ended{guardian_ended_.get(), POLLIN, 0};
  poll(&ended, 1, 1000);
}

void Crew::start(const WorkerStart& how) {
  SKEIN_CHECK(!how.argv.empty(), "no program to start");
  const std::vector<char*> argv = pointers(how.argv);
  const std::vector<char*> environment = pointers(how.environment);
  Pipe trouble = make_pipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork_or_throw();
  if (pid == 0)
    become(how, argv.data(), environment.data(), guardian_, launcher, trouble.write.get());
  workers_.push_back({pid, open_process(pid)});
  if (!workers_.back().ended.valid())
    throw Error(fmt::format("cannot watch a worker process: {}{}", system_error_text(errno),
                            errno == ENOSYS ? " (pidfd_open needs Linux 5.3)" : ""));
  trouble.write = FileDescriptor();
  int code = 0;
  ssize_t got;
  while ((got = read(trouble.read.get(), &code, sizeof(code))) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(sizeof(code)))
    throw ConfigError(fmt::format("cannot start '{}': {}", how.argv[0], std::strerror(code)));
}

int Crew::alive() const {
  int count = 0;
  for (const Worker& worker : workers_) count += worker.pid > 0;
  return count;
}

int Crew::descriptor(int rank) const {
  return workers_[static_cast<std::size_t>(rank)].ended.get();
}

std::optional<WorkerEnd> Crew::reap(int rank) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  int status = 0;
  if (worker.pid <= 0 || waitpid(worker.pid, &status, WNOHANG) != worker.pid) return std::nullopt;
  worker.pid = -1;
  worker.ended = FileDescriptor();
  WorkerEnd end;
  if (WIFSIGNALED(status))
    end.signal = WTERMSIG(status);
  else
    end.code = WEXITSTATUS(status);
  return end;
}

bool Crew::stopped(int rank) const {
  const Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (worker.pid <= 0) return false;
  std::ifstream in(fmt::format("/proc/{}/stat", worker.pid));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  // The program's name, in parentheses, may hold anything.
  const std::size_t name = text.rfind(')');
  return name != std::string::npos && text.substr(name, 4).find('T') != std::string::npos;
}

// A group has its number until the last of it, zombies included, is gone.
bool Crew::group_is_ours() const {
  if (killed_) return false;
  if (alive() > 0) return true;
  pollfd guardian{guardian_ended_.get(), POLLIN, 0};
  return guardian_ended_.valid() && poll(&guardian, 1, 0) == 0;
}

void Crew::signal(int number) {
  if (group_is_ours()) kill(-guardian_, number);
  killed_ |= number == SIGKILL;
}

void Crew::kill_one(int rank) const {
  const Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (worker.pid > 0) kill(worker.pid, SIGKILL);
}

}  // namespace skein
