#include "strategy/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/packed.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::int64_t kMostNamed = 8;  // ranks in a message

// Samples of the step before: as announced, and as computed.
struct Count {
  std::int64_t announced, computed;

  bool none() const { return announced == 0 && computed == 0; }
  bool in_proportion_to(const Count& other) const {
    return static_cast<__int128>(announced) * other.computed ==
           static_cast<__int128>(computed) * other.announced;
  }
};

struct Difference {
  std::int64_t rank;
  Count count;
};

}  // namespace

struct StepTable::Record {
  std::int64_t expected;                 // samples of this step
  std::int64_t first;                    // those of the lowest rank that has any
  Count last;                            // of the step before, of all
  Count like;                            // of one rank that had any; so are all others', but for
  std::int64_t uneven;                   // not 0: some were in another proportion
  std::int64_t differing;                // ranks that did not compute what they announced,
  Difference differences[kMostNamed];    // and some of them
  std::int64_t rank, decision, another;  // the lowest; what it decided; one that decided otherwise
  std::int64_t stop, waiting, told;      // not 0: one wants to stop; how many wait; of rank 0
};

StepTable::Record StepTable::header_of(std::span<const std::byte> record) {
  static_assert(sizeof(Record) == kBytes);
  return unpack<Record>(record.first(sizeof(Record)));
}

void StepTable::merge(std::span<std::byte> into, std::span<const std::byte> from) {
  Record a = header_of(into);
  const Record b = header_of(from);
  a.expected += b.expected;
  if (a.first == 0) a.first = b.first;
  a.last.announced += b.last.announced;
  a.last.computed += b.last.computed;
  a.uneven |= b.uneven | (a.like.in_proportion_to(b.like) ? 0 : 1);
  if (a.like.none()) a.like = b.like;
  // A count that makes no sense, from whoever it is, must not lead out of the record.
  a.differing = std::max<std::int64_t>(a.differing, 0);
  for (std::int64_t i = 0; i < std::min(b.differing, kMostNamed); ++i)
    if (a.differing + i < kMostNamed) a.differences[a.differing + i] = b.differences[i];
  a.differing += std::max<std::int64_t>(b.differing, 0);
  if (a.another < 0) a.another = a.decision != b.decision ? b.rank : b.another;
  a.stop |= b.stop;
  a.waiting += b.waiting;
  a.told += b.told;
  pack(into.first(sizeof(Record)), a);
  // Each rank fills in its own speed: those of others are zeros.
  for (std::size_t i = sizeof(Record); i < into.size(); ++i) into[i] |= from[i];
}

StepTable::StepTable(Worker& worker, Channel channel, bool speeds)
    : worker_(worker),
      channel_(channel),
      merge_(merge),
      record_(sizeof(Record) +
              (speeds ? static_cast<std::size_t>(worker.size()) * sizeof(double) : 0)) {}

StepTable::Record StepTable::own_record(std::int64_t samples, bool waits) {
  const Count last{std::exchange(last_expected_, 0), std::exchange(computed_, 0)};
  Record own{.expected = samples,
             .first = samples,
             .last = last,
             .like = last,
             .uneven = 0,
             .differing = last.announced != last.computed ? 1 : 0,
             .differences = {{worker_.rank(), last}},
             .rank = worker_.rank(),
             .decision = worker_.decision,
             .another = -1,
             .stop = worker_.wants_to_stop ? 1 : 0,
             .waiting = waits ? 1 : 0,
             .told = 0};
  // What is told is for a step.
  if (worker_.rank() == 0 && !waits) own.told = std::exchange(told_, 0);
  return own;
}

void StepTable::start(std::int64_t samples, bool waits) {
  const std::span record(record_);
  std::ranges::fill(record_, std::byte{});
  pack(record.first(sizeof(Record)), own_record(samples, waits));
  if (record.size() > sizeof(Record)) {
    const double own = worker_.meters.seconds_per_sample;
    std::memcpy(
        record.data() + sizeof(Record) + static_cast<std::size_t>(worker_.rank()) * sizeof(own),
        &own, sizeof(own));
  }
  expected_ = samples;
  // The first step fixes the reference; until it is over the ranks have not heard of each other, so
  // there a sample weighs 1. Alone, every batch weighs 1: plain SGD, bit for bit.
  std::int64_t& reference = worker_.progress.batch_reference;
  if (worker_.size() == 1) reference = samples;
  unit_ = reference > 0 ? static_cast<float>(reference) : 1;
  own_weight_ = static_cast<float>(samples) / unit_;
  exchange_ = ScopedJob(worker_.loop().spawn(
      worker_.fabric().combine(channel_, message_of(record_), merge_, worker_.limit())));
}

void StepTable::record(std::int64_t samples) {
  computed_ = samples;
  if (worker_.size() > 1 || own_weight_ > 0 || samples == 0) return;
  last_expected_ = 0;
  refuse(own_record(0, false));
}

Task<> StepTable::finish() {
  co_await exchange_->join();
  exchange_ = ScopedJob();
  const Record all = header_of(record_);
  check_last_step(all);
  check_decisions(all);
  read(all);
}

void StepTable::check_decisions(const Record& all) const {
  if (all.another >= 0)
    throw ConfigError(fmt::format(
        "step {}: before_update(), set_learning_rate(), a scheduler or freeze() did not decide the "
        "same on ranks 0 and {}, so their models are no longer equal. Decide by what "
        "before_update() is shown, or by what all workers know",
        worker_.progress.steps, all.another));
}

void StepTable::read(const Record& all) {
  // Alone, what was computed is known at once.
  const bool alone = worker_.size() == 1;
  last_expected_ = alone ? computed_ : expected_;
  worker_.all_stop = worker_.all_stop || all.stop != 0;
  waiting_ = static_cast<int>(all.waiting);
  heard_ = all.told;
  total_weight_ = static_cast<double>(all.expected) / static_cast<double>(unit_);
  speeds_.clear();
  for (std::size_t at = sizeof(Record); at < record_.size(); at += sizeof(double)) {
    double time = 0;
    std::memcpy(&time, record_.data() + at, sizeof(time));
    if (time > 0) speeds_.push_back(1 / time);
  }
  if (std::ssize(speeds_) != worker_.size()) speeds_.clear();
  const std::int64_t samples = alone ? computed_ : all.expected;
  empty_ = samples == 0;
  Progress& progress = worker_.progress;
  progress.samples += samples;
  if (progress.batch_reference == 0) progress.batch_reference = all.first;
}

void StepTable::refuse(const Record& all) const {
  const std::int64_t named = std::min(all.differing, kMostNamed);
  std::vector<Difference> differences(all.differences, all.differences + named);
  std::ranges::sort(differences, {}, &Difference::rank);
  std::string text;
  for (const auto& [rank, count] : differences)
    text += fmt::format("{}rank {} was expected to compute {} samples and computed {}",
                        text.empty() ? "" : "; ", rank, count.announced, count.computed);
  if (all.differing > named) text += fmt::format("; and {} more ranks", all.differing - named);
  throw ConfigError(fmt::format(
      "step {}: {}: the average of the workers was weighted wrongly. Say expect(samples) before "
      "backward() when batch sizes change",
      worker_.progress.steps, text));
}

// Shares may all be larger or smaller than announced by the same factor: then the average was right
// and only the count has to follow. Where all were announced and none computed, gradients that were
// to be discarded have become an update.
void StepTable::check_last_step(const Record& all) const {
  if (all.uneven != 0 || (all.last.announced == 0) != (all.last.computed == 0)) refuse(all);
  worker_.progress.samples += all.last.computed - all.last.announced;
}

}  // namespace skein
