#include "keep/background_writer.h"

#include <utility>

#include "core/check.h"

namespace skein {

BackgroundWriter::~BackgroundWriter() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::start(std::function<void()> job) {
  SKEIN_CHECK(wait_for(Duration(0)), "the last job goes on still");
  if (thread_.joinable()) thread_.join();
  busy_ = true;
  thread_ = std::thread([this, job = std::move(job)]() mutable {
    std::string error;
    try {
      job();
    } catch (const std::exception& caught) {
      error = caught.what();
      if (error.empty()) error = "without a reason";
    }
    job = nullptr;  // and all that it holds
    const std::lock_guard lock(mutex_);
    busy_ = false;
    error_ = std::move(error);
    ended_.notify_all();
  });
}

bool BackgroundWriter::wait_for(Duration longest) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, longest, [this] { return !busy_; });
}

std::string BackgroundWriter::take_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, "");
}

}  // namespace skein
