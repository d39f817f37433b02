#include "cli/live_page.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "observe/json_text.h"
#include "skein/error.h"
#include "skein/metrics_file.h"

namespace skein {
namespace {

constexpr const char* kEvents = "events.jsonl";

std::filesystem::path fresh_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "skein-page-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    throw Error(fmt::format("cannot make the folder {}", path));
  return path;
}

}  // namespace

LivePage::LivePage(const std::string& address, const std::filesystem::path& folder)
    : server_("--page", parse_page_address("--page", address), folder) {
  fmt::print(stderr, "page  {}\n", server_.url());
  std::fflush(stderr);
}

Watchers::Watchers(const TrainOptions& options, LaunchOptions& launch) {
  if (!options.timeline) return;
  temporary_ = options.out.empty();
  folder_ = temporary_ ? fresh_folder() : std::filesystem::path(options.out);
  std::error_code none;
  if (options.resume.empty()) std::filesystem::remove(folder_ / kEvents, none);
  try {
    if (!options.page.empty()) page_.emplace(options.page, folder_);
  } catch (...) {
    if (temporary_) std::filesystem::remove_all(folder_, none);
    throw;
  }
  if (temporary_) launch.extra_env[kObservedVariable] = folder_.string();
  launch.on_event = [this](const LaunchEvent& event) { note(event); };
}

Watchers::~Watchers() {
  page_.reset();
  std::error_code none;
  if (temporary_) std::filesystem::remove_all(folder_, none);
}

void Watchers::ended(int code) {
  if (folder_.empty()) return;
  note({"ended", -1,
        code == 0 ? "the run has ended well"
                  : fmt::format("the run has ended with exit code {}", code)});
}

// For those who watch; the run does not end because of it.
void Watchers::note(const LaunchEvent& event) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::json line{
      {"kind", event.kind},
      {"unix_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
      {"text", event.text.substr(0, event.text.find_last_not_of("\n ") + 1)}};
  if (event.rank >= 0) line["rank"] = event.rank;
  try {
    MetricsWriter(folder_ / kEvents).write_json(text_of(line));
  } catch (const Error&) {
  }
}

}  // namespace skein
