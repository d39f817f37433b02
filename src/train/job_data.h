// Which samples a job trains on, step after step, and where it stands in them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "feed/feed.h"
#include "keep/checkpoint_state.h"
#include "skein/torch.h"
#include "torch/train_access.h"
#include "train/options.h"

namespace skein {

class JobData {
 public:
  using Indices = std::vector<std::uint32_t>;

  // This worker's part of a step: one piece per micro-batch that is not empty.
  struct Part {
    std::vector<Indices> pieces;
    std::int64_t samples = 0;
  };

  struct Step {
    Part part;
    Part upcoming;     // a guess of the next one's, good for loading early
    std::string name;  // in traces, with a space before it; may be empty
  };

  // `run` and `options` outlive it. `size`: samples in the data; `budget`: to train on.
  JobData(Distributed& run, const TrainOptions& options, std::int64_t size, std::int64_t budget);

  // What must not change between a job and its continuation ("model": "cnn", …).
  Values identity() const;

  // At the beginning, or where a checkpoint was made. All workers make one of the two calls.
  void start() { open({}); }
  void resume(const Resumed& resumed, const CheckpointState::Data& data);

  // The step that comes; and says that it has been made.
  Step next();
  void step_over() { position_ = after_; }

  // Where all workers' data stand, for a checkpoint, and in `own` where this one's do. All call it.
  CheckpointState::Data place(OwnNumbers& own);

  // All workers call it when they draw no more.
  void close() { feed_->close(); }

 private:
  void open(const Feed::Start& start);
  std::int64_t step_batch() const;
  Feed::Step draw(std::int64_t done);
  Part own_part(const Feed::Step& step);

  Distributed& run_;
  const TrainOptions& options_;
  const std::int64_t size_, budget_;
  const bool lockstep_;
  std::unique_ptr<Feed> feed_;
  GlobalBatches::Position position_, after_;  // of the last step that is over; of the one drawn
  bool begun_ = false;
  Feed::Step next_;  // drawn, and not begun
};

}  // namespace skein
