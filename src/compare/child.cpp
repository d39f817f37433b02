#include "compare/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/crew.h"
#include "skein/error.h"

namespace skein::compare {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 250;
constexpr std::chrono::seconds kStopTime{30};
constexpr std::size_t kLastLines = 12;

FileDescriptor opened(const std::filesystem::path& path, int flags) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file.valid())
    throw Error(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  return file;
}

std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

// Bytes that are no UTF-8 become U+FFFD: a program may print anything.
std::string as_text(const std::string& bytes) {
  using Json = nlohmann::json;
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string last_lines(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > kLastLines) lines.pop_front();
  }
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "\n") + line;
  return as_text(out);
}

class Watch {
 public:
  Watch(Crew& crew, SignalQueue& signals, ChildEnd& end)
      : crew_(crew), signals_(signals), end_(end) {}

  // Until the child has ended, or a tick has passed.
  void wait() {
    pollfd watched[2] = {{crew_.descriptor(0), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    poll(watched, 2, kTickMs);
    while (const int number = signals_.next()) handle(number);
    if (end_.stopped_by != 0 && Clock::now() > give_up_) crew_.signal(SIGKILL);
  }

 private:
  void handle(int number) {
    if (number == SIGTSTP) {
      crew_.signal(SIGTSTP);  // it stops its workers first
      raise(SIGSTOP);
      crew_.signal(SIGCONT);
    } else if (end_.stopped_by == 0) {
      end_.stopped_by = number;
      give_up_ = Clock::now() + kStopTime;
      crew_.signal(number);
    } else {
      crew_.signal(SIGKILL);
    }
  }

  Crew& crew_;
  SignalQueue& signals_;
  ChildEnd& end_;
  Clock::time_point give_up_{};
};

}  // namespace

ChildEnd run_child(const std::vector<std::string>& argv, const std::filesystem::path& log,
                   SignalQueue& signals, const std::function<void(double seconds)>& tick) {
  const FileDescriptor input = opened("/dev/null", O_RDONLY);
  const FileDescriptor output = opened(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  ChildEnd end;
  Crew crew;
  WorkerStart how;
  how.argv = argv;
  how.environment = environment();
  how.input = input.get();
  how.output = output.get();
  how.error = output.get();
  how.signal_mask = signals.mask_before();
  crew.start(how);
  Watch watch(crew, signals, end);
  for (;;) {
    watch.wait();
    if (const auto ended = crew.reap(0)) {
      end.code = ended->code;
      end.signal = ended->signal;
      break;
    }
    tick(elapsed());
  }
  end.seconds = elapsed();
  if (end.code != 0 || end.signal != 0) end.last_words = last_lines(log);
  return end;
}

}  // namespace skein::compare
