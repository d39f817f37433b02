// What people may look at while a run goes on: its page, and what its launcher has seen.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "launch/launcher.h"
#include "page/server.h"
#include "train/options.h"

namespace skein {

// Names to workers the folder that the page shows where there is no --out.
inline constexpr const char* kObservedVariable = "SKEIN_OBSERVED";

// The page that --page asks for. Says its address on standard error.
class LivePage {
 public:
  // ConfigError when there can be none there.
  LivePage(const std::string& address, const std::filesystem::path& folder);

 private:
  PageServer server_;
};

// A launcher's: the page, in a folder that goes with it where the run has none, and events.jsonl in
// the folder that the page or `skein watch` will show. Nothing, unless somebody wants to watch.
class Watchers {
 public:
  // Adds to `launch`, which may be started afterwards for as long as this lives.
  Watchers(const TrainOptions& options, LaunchOptions& launch);
  ~Watchers();
  Watchers(const Watchers&) = delete;
  Watchers& operator=(const Watchers&) = delete;

  void ended(int code);  // of the run

 private:
  void note(const LaunchEvent& event);

  std::filesystem::path folder_;
  bool temporary_ = false;
  std::optional<LivePage> page_;
};

}  // namespace skein
