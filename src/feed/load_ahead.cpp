#include "feed/load_ahead.h"

#include <algorithm>
#include <utility>

namespace skein {

LoadAhead::LoadAhead(Load load, bool at_once)
    : load_(std::move(load)),
      at_once_(at_once),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void LoadAhead::request(const std::vector<Indices>& upcoming) {
  {
    const std::lock_guard lock(mutex_);
    std::deque<std::shared_ptr<Job>> jobs;
    for (const Indices& indices : upcoming) {
      const auto known = std::ranges::find_if(
          jobs_, [&](const auto& job) { return job && job->indices == indices; });
      if (known != jobs_.end()) {
        jobs.push_back(std::exchange(*known, nullptr));
      } else {
        jobs.push_back(std::make_shared<Job>());
        jobs.back()->indices = indices;
      }
    }
    jobs_ = std::move(jobs);
  }
  changed_.notify_all();
}

std::shared_ptr<void> LoadAhead::take(std::span<const std::uint32_t> indices) {
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find_if(
      jobs_, [&](const auto& job) { return std::ranges::equal(job->indices, indices); });
  std::shared_ptr<Job> job;
  if (found != jobs_.end()) {
    job = *found;
    jobs_.erase(found);
  }
  // Not begun, because the thread is busy with what is not wanted any more: no use waiting.
  if (!job || !job->started) {
    lock.unlock();
    return load(indices);
  }
  changed_.wait(lock, [&] { return job->done; });
  if (job->error) std::rethrow_exception(job->error);
  return std::move(job->value);
}

std::shared_ptr<void> LoadAhead::load(std::span<const std::uint32_t> indices) {
  std::unique_lock lock(loading_, std::defer_lock);
  if (!at_once_) lock.lock();
  return load_(indices);
}

std::shared_ptr<LoadAhead::Job> LoadAhead::first_unstarted() const {
  const auto found = std::ranges::find_if(jobs_, [](const auto& job) { return !job->started; });
  return found == jobs_.end() ? nullptr : *found;
}

void LoadAhead::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return first_unstarted() != nullptr; }) &&
         !stop.stop_requested()) {
    // Held here as well: the request may be replaced or taken meanwhile.
    const std::shared_ptr<Job> job = first_unstarted();
    job->started = true;
    lock.unlock();
    try {
      job->value = load(job->indices);
    } catch (...) {
      job->error = std::current_exception();
    }
    lock.lock();
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace skein
