#include "cli/restarts.h"

#include <fmt/format.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/host_options.h"
#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "launch/restart_judge.h"
#include "launch/signals.h"
#include "observe/json_text.h"
#include "skein/error.h"
#include "train/train.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr const char* kVariable = "SKEIN_RESTARTS";
constexpr int kPause = 1, kPauseWhenStuck = 3;  // seconds
constexpr auto kLastMoment = 5s;                // for the last workers of an agent to end

// The checkpoint that a resumed run takes, unless it is damaged.
struct Newest {
  fs::path path;
  fs::file_time_type written{};
  bool operator==(const Newest&) const = default;
};

Newest newest_in(const fs::path& out) {
  const auto all = checkpoints_in(out);
  if (all.empty()) return {};
  std::error_code ignored;
  return {all.back(), fs::last_write_time(all.back(), ignored)};
}

std::int64_t samples_at(const fs::path& resume) {
  if (resume.empty()) return 0;
  if (const std::int64_t named = samples_of(resume); named >= 0) return named;
  const auto all = checkpoints_in(resume);
  return all.empty() ? 0 : samples_of(all.back());
}

std::string counted(int workers) {
  return fmt::format("{} worker{}", workers, workers == 1 ? "" : "s");
}

class Restarts {
 public:
  Restarts(const Invocation& invocation, const TrainOptions& options, const LaunchOptions& launch,
           const RestartOptions& restarts)
      : arguments_(invocation.arguments),
        options_(options),
        launch_(launch),
        limits_(restarts),
        first_(newest_in(options.out)),
        from_(samples_at(options.resume)),
        judge_(restarts.most, from_) {
    launch_.why_not_anew = [this](const RunLoss& loss) { return judge(loss); };
  }

  int operator()() {
    for (;;) {
      loss_.reset();
      started_with_ = newest_in(options_.out);
      const int code = attempt();
      if (!loss_) return code;
      begin_anew();
      if (const int signal = pause(); signal != 0) return interrupted(signal);
    }
  }

 private:
  std::string judge(const RunLoss& loss) {
    const bool saved = newest_in(options_.out) != started_with_;
    std::string why = judge_.why_not(std::max(loss.samples, from_), saved);
    if (why.empty()) loss_ = loss;
    return why;
  }

  // All hosts are asked each time: one that was gone may be back.
  int attempt() {
    LaunchOptions launch = launch_;
    for (;;) {
      if (!list_.empty()) tell(launch);
      try {
        return skein::launch(launch);
      } catch (const HostError& error) {
        if (list_.empty()) throw;  // at the first start it is the user who is wrong
        if (leave_out(launch, error)) continue;
        const std::string why = judge({error.what(), from_});
        if (!why.empty()) throw Error(fmt::format("{}; of restarts, {}", error.what(), why));
        return 1;
      }
    }
  }

  void tell(LaunchOptions& launch) {
    list_.back()["workers"] = launch.workers;
    // Agents that do not hear from the launcher end their workers after its silence, in a moment.
    const auto outlived = launch.remote ? launch.remote->silence + kLastMoment : 0ms;
    launch.extra_env[kVariable] = text_of(
        {{"batch_workers", options_.workers}, {"list", list_}, {"outlived_ms", outlived.count()}});
  }

  bool leave_out(LaunchOptions& launch, const HostError& error) const {
    RemoteOptions& remote = *launch.remote;
    const auto gone = std::find_if(remote.hosts.begin(), remote.hosts.end(),
                                   [&](const Host& host) { return host.name == error.host(); });
    const bool first = gone == remote.hosts.begin();
    const int left = launch.workers - gone->workers;
    if (limits_.min_workers == 0 || left < limits_.min_workers ||
        (first && !remote.rendezvous.empty()))  // which is an address of that host
      return false;
    remote.hosts.erase(gone);
    launch.workers = left;
    fmt::print(stderr, "skein: {}; the run goes on without that host, with {}.\n", error.what(),
               counted(left));
    return true;
  }

  // From the newest checkpoint that the run itself has made, or else as it began.
  void begin_anew() {
    const std::int64_t at = std::max(loss_->samples, from_);
    const Newest now = newest_in(options_.out);
    std::vector<std::string> arguments = arguments_;
    if (now != first_ && !now.path.empty()) {
      arguments = without_options(arguments_, {"--resume"}, {"--overwrite"});
      arguments.insert(arguments.end(), {"--resume", options_.out});
      if (options_.overwrite && !options_.resume_auto)
        arguments.emplace_back("--overwrite=false");  // of a --config file
      from_ = samples_of(now.path);
    } else if (!options_.overwrite && !options_.resume_auto &&
               !continues_run(options_.out, options_.resume)) {
      arguments.emplace_back("--overwrite");  // what the run itself has left
    }
    launch_.argv.resize(1);
    launch_.argv.insert(launch_.argv.end(), arguments.begin(), arguments.end());
    list_.push_back({{"at_samples", at},
                     {"resumed_from_samples", from_},
                     {"workers", launch_.workers},
                     {"why", loss_->why}});
    const std::string next = fmt::format(
        "restart {} of {} in {} s with {} from {} samples; {}.", judge_.restarts(), limits_.most,
        pause_seconds(), counted(launch_.workers), from_,
        at == from_ ? "nothing was lost"
                    : fmt::format("those from {} to {} are lost and done again", from_, at));
    fmt::print(stderr, "skein: {}.\nskein: {}\n", loss_->why, next);
    if (launch_.on_event) launch_.on_event({"restart", -1, next});
  }

  int pause_seconds() const { return judge_.stuck() ? kPauseWhenStuck : kPause; }

  // A signal that came meanwhile, or 0.
  int pause() const {
    SignalQueue signals;
    pollfd watched{signals.descriptor(), POLLIN, 0};
    poll(&watched, 1, 1000 * pause_seconds());
    return signals.next();
  }

  int interrupted(int signal) const {
    const std::string resume = launch_.resume_hint ? launch_.resume_hint() : "";
    fmt::print(stderr, "skein: interrupted by SIG{}; the run has ended.\n{}", sigabbrev_np(signal),
               resume.empty() ? "" : fmt::format("  resume  {}\n", resume));
    return signal == SIGTERM || signal == SIGUSR1 ? kStoppedCode : 128 + signal;
  }

  const std::vector<std::string> arguments_;
  const TrainOptions& options_;
  LaunchOptions launch_;
  const RestartOptions limits_;
  const Newest first_;
  Newest started_with_;
  std::int64_t from_;  // where the run was started last
  RestartJudge judge_;
  std::optional<RunLoss> loss_;
  Json list_ = Json::array();
};

}  // namespace

int launch_with_restarts(const Invocation& invocation, const TrainOptions& options,
                         const LaunchOptions& launch, const RestartOptions& restarts) {
  return Restarts(invocation, options, launch, restarts)();
}

void read_restarts(const char* text, TrainOptions& options) {
  if (text == nullptr) return;
  const Json all = Json::parse(text, nullptr, false);
  if (!all.is_object() || !all.contains("list") || !all["list"].is_array() ||
      !all.contains("batch_workers") || !all["batch_workers"].is_number_integer() ||
      all["batch_workers"] < 1 || !all.contains("outlived_ms") ||
      !all["outlived_ms"].is_number_integer())
    throw ConfigError(
        fmt::format("{}={}: expected what skein train --restarts sets", kVariable, text));
  options.restarts_json = all["list"].dump();
  options.batch_workers = all["batch_workers"].get<int>();
  options.outlived = std::chrono::milliseconds(all["outlived_ms"].get<std::int64_t>());
}

}  // namespace skein
