#include "data/prefetch.h"

#include <algorithm>
#include <utility>

namespace skein {

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset)
    : dataset_(std::move(dataset)), thread_([this](std::stop_token stop) { run(stop); }) {}

void Prefetcher::request(std::vector<std::uint32_t> indices) {
  auto job = std::make_shared<Job>();
  job->indices = std::move(indices);
  {
    std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  changed_.notify_all();
}

Batch Prefetcher::take(std::span<const std::uint32_t> indices) {
  std::unique_lock lock(mutex_);
  if (job_ == nullptr || !std::ranges::equal(job_->indices, indices)) {
    lock.unlock();
    return dataset_->get(indices);
  }
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  // Not begun, because the thread is still busy with a request that was replaced: no use waiting.
  if (!job->started) {
    lock.unlock();
    return dataset_->get(indices);
  }
  changed_.wait(lock, [&] { return job->done; });
  if (job->error) std::rethrow_exception(job->error);
  return std::move(job->batch);
}

void Prefetcher::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const auto waiting = [&] { return job_ != nullptr && !job_->started; };
  while (changed_.wait(lock, stop, waiting) && !stop.stop_requested()) {
    // Held here as well: the request may be replaced or taken meanwhile.
    const std::shared_ptr<Job> job = job_;
    job->started = true;
    lock.unlock();
    try {
      job->batch = dataset_->get(job->indices);
    } catch (...) {
      job->error = std::current_exception();
    }
    lock.lock();
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace skein
