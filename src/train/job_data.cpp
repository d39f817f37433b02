#include "train/job_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/shares.h"

namespace skein {
namespace {

constexpr const char* kPosition = "data_position";
constexpr const char* kBlocks = "data_blocks";

std::string joined(const TrainOptions::Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  return text;
}

// With another number of workers nobody can go on with the old ones' own state: the averages do,
// and what they had drawn from the queue goes back to it.
void return_blocks(const Resumed& resumed, BlockQueue::State& queue) {
  for (int rank = 0; rank < resumed.workers; ++rank) {
    const auto held = TrainAccess::own_of(resumed, rank)[kBlocks];
    queue.returned.insert(queue.returned.end(), held.begin(), held.end());
  }
  std::sort(queue.returned.begin(), queue.returned.end());
}

}  // namespace

JobData::JobData(Distributed& run, const TrainOptions& options, std::int64_t size,
                 std::int64_t budget)
    : run_(run),
      options_(options),
      size_(size),
      budget_(budget),
      lockstep_(run.traits().lockstep) {}

Values JobData::identity() const {
  Values all{{"model", options_.model},
             {"model settings", joined(options_.model_settings)},
             {"data", options_.data},
             {"data settings", joined(options_.data_settings)},
             {"optimizer", options_.optimizer},
             {lockstep_ ? "global batch" : "batch of a worker", std::to_string(step_batch())},
             {"seed", std::to_string(options_.seed)}};
  if (!lockstep_) all["data split"] = options_.data_split;
  return all;
}

void JobData::open(const Feed::Start& start) {
  const Draw draw = lockstep_                       ? Draw::together
                    : options_.data_split == "once" ? Draw::queued
                                                    : Draw::alone;
  feed_ =
      std::make_unique<Feed>(run_.world(), TrainAccess(run_).queue_channel(),
                             FeedPlan{size_, step_batch(), budget_, options_.seed, draw}, start);
}

void JobData::resume(const Resumed& resumed, const CheckpointState::Data& data) {
  position_ = {data.epoch, data.offset};
  BlockQueue::State queue{data.next_block, data.returned_blocks, {}};
  OwnNumbers own = resumed.own;
  if (const auto& place = own[kPosition]; place.size() == 2) position_ = {place[0], place[1]};
  queue.held = own[kBlocks];
  if (resumed.workers != run_.world().size() && run_.world().rank() == 0)
    return_blocks(resumed, queue);
  open({position_, queue});
}

CheckpointState::Data JobData::place(OwnNumbers& own) {
  BlockQueue::State queue = feed_->settled();
  if (next_.block >= 0) queue.held.insert(queue.held.begin(), next_.block);
  own[kPosition] = {position_.epoch, position_.offset};
  own[kBlocks] = std::move(queue.held);
  return {position_.epoch, position_.offset, queue.next, std::move(queue.returned)};
}

// Of all workers in lockstep, else of this one.
std::int64_t JobData::step_batch() const {
  const int workers = options_.batch_workers > 0 ? options_.batch_workers : run_.world().size();
  return options_.batch * options_.accumulate * (lockstep_ ? workers : 1);
}

Feed::Step JobData::draw(std::int64_t done) {
  return done >= budget_ ? Feed::Step{} : feed_->next(budget_ - done);
}

// Shares may follow measured speeds, so the next step's are only a guess.
JobData::Step JobData::next() {
  const std::int64_t done = run_.samples();
  if (!std::exchange(begun_, true)) next_ = draw(done);
  const Feed::Step step = std::move(next_);
  next_ = draw(lockstep_ ? done + std::ssize(step.indices) : done);
  after_ = step.after;
  return {own_part(step), own_part(next_), step.block < 0 ? "" : fmt::format(" {}", step.block)};
}

JobData::Part JobData::own_part(const Feed::Step& step) {
  Part part;
  Share share{0, std::ssize(step.indices)};
  if (lockstep_) share = share_of(run_.shares(share.count), run_.world().rank());
  part.samples = share.count;
  auto next = step.indices.begin() + share.begin;
  for (const std::int64_t count : even_shares(part.samples, options_.accumulate)) {
    if (count > 0) part.pieces.emplace_back(next, next + count);
    next += count;
  }
  return part;
}

}  // namespace skein
