// What the two kinds of loop over a shared dataset have in common.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/home_process.h"
#include "feed/load_ahead.h"
#include "observe/board.h"
#include "skein/torch.h"

namespace skein {

// Hands out this worker's batches.
class ShareLoop::Impl {
 public:
  virtual ~Impl() = default;

  // False in a child that fork() made, where the threads that load are missing.
  bool here() const { return process_.here(); }

  // See ShareLoop.
  virtual bool next(SharedFacts& facts, std::shared_ptr<void>& value) = 0;

 private:
  HomeProcess process_;
};

// Trains: each batch is to be a step.
std::unique_ptr<ShareLoop::Impl> training_loop(Distributed::Impl& run, std::int64_t dataset_size,
                                               const ShareOptions& options, ShareLoop::Load load);

// Evaluates: every sample comes once, in order, and training hears nothing of it.
std::unique_ptr<ShareLoop::Impl> evaluation_loop(Distributed::Impl& run, std::int64_t dataset_size,
                                                 const ShareOptions& options, ShareLoop::Load load);

// Compares what all workers ask for, then checks it, so that what is wrong is wrong on all of them.
// `call` says what the loop is, with everything that must be the same.
void agree_on_loop(Distributed::Impl& run, const std::string& call, std::int64_t dataset_size,
                   const ShareOptions& options);

// Makes a loop's batches, `ahead` of them on a thread before they are used.
class BatchLoads {
 public:
  using Indices = LoadAhead::Indices;

  // Without `load` there is nothing to make.
  BatchLoads(Board& board, ShareLoop::Load load, std::ptrdiff_t ahead);
  BatchLoads(const BatchLoads&) = delete;
  BatchLoads& operator=(const BatchLoads&) = delete;

  std::ptrdiff_t ahead() const { return ahead_; }

  // What the dataset makes of these samples, and throws. Those that probably come next are loaded
  // meanwhile.
  std::shared_ptr<void> take(const Indices& own, std::span<const Indices> upcoming);

  // Nothing is needed any more. Waits for a load in progress.
  void stop() { loader_.reset(); }

 private:
  Board& board_;
  ShareLoop::Load load_;
  std::ptrdiff_t ahead_;
  std::unique_ptr<LoadAhead> loader_;
};

}  // namespace skein
