#include "data/prefetch.h"

#include <algorithm>
#include <utility>

namespace skein {

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, Upload upload)
    : dataset_(std::move(dataset)),
      upload_(std::move(upload)),
      thread_([this](std::stop_token stop) { run(stop); }) {}

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
    return upload_.finish(load(indices));
  }
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  // Not begun, because the thread is still busy with a request that was replaced: no use waiting.
  if (!job->started) {
    lock.unlock();
    return upload_.finish(load(indices));
  }
  changed_.wait(lock, [&] { return job->done; });
  if (job->error) std::rethrow_exception(job->error);
  return upload_.finish(std::move(job->batch));
}

Upload::Pending Prefetcher::load(std::span<const std::uint32_t> indices) const {
  return upload_.start(dataset_->get(indices));
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
      job->batch = load(job->indices);
    } catch (...) {
      job->error = std::current_exception();
    }
    lock.lock();
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace skein
