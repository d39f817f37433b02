#include "strategy/round.h"

#include <cmath>
#include <utility>

namespace skein {
namespace {

// Counts travel in parts, as floats, so that sums over thousands of workers stay whole numbers.
constexpr std::int64_t kPart = 4096;

}  // namespace

Round::Round(Worker& worker, std::vector<Span> values, Channel values_channel,
             Channel notes_channel)
    : worker_(worker),
      values_(std::move(values)),
      values_channel_(values_channel),
      notes_channel_(notes_channel),
      notes_(worker.fabric().allocate(kColumns)) {}

void Round::write(const RoundNotes& own) {
  SKEIN_CHECK(!posted(), "a round was begun while another is on its way");
  const Span row = notes_->span();
  const std::int64_t high = own.samples / kPart / kPart;
  row[kLow] = static_cast<float>(own.samples % kPart);
  row[kMiddle] = static_cast<float>(own.samples / kPart % kPart);
  row[kHigh] = static_cast<float>(high);
  row[kFigure] = static_cast<float>(own.figure);
  row[kSettling] = static_cast<float>(own.settling);
  row[kCarries] = static_cast<float>(own.carries);
  row[kStop] = worker_.wants_to_stop ? 1 : 0;
}

RoundNotes Round::read() const {
  const Span row = notes_->span();
  const std::int64_t middle = std::llround(row[kMiddle]) + kPart * std::llround(row[kHigh]);
  return {std::llround(row[kLow]) + kPart * middle, static_cast<double>(row[kFigure]),
          static_cast<int>(std::lround(row[kSettling])),
          static_cast<int>(std::lround(row[kCarries]))};
}

void Round::post(const RoundNotes& own, const std::vector<Span>& values) {
  write(own);
  sending_ = ScopedJob(worker_.loop().spawn(send(own.carries > 0, values)));
}

std::vector<Task<>> Round::sums(const std::vector<Span>& values) {
  std::vector<Task<>> all;
  all.reserve(values.size() + 1);
  for (const Span each : values)
    all.push_back(worker_.fabric().all_reduce(values_channel_, each, worker_.limit()));
  return all;
}

// Where only time is simulated the values have no memory, so the notes are a message of their own.
Task<> Round::send(bool carries, std::vector<Span> values) {
  const Time begin = worker_.loop().now();
  std::vector<Task<>> all;
  if (carries) all = sums(values);
  all.push_back(worker_.fabric().all_reduce_small(notes_channel_, notes_->span(), worker_.limit()));
  co_await all_of(worker_.loop(), std::move(all));
  if (!carries && read().carries > 0) co_await all_of(worker_.loop(), sums(values));
  worker_.trace().span(Lane::all_reduce, "round", begin, worker_.loop().now());
}

Task<RoundNotes> Round::take() {
  co_await sending_->join();
  sending_ = ScopedJob();
  if (notes_->span()[kStop] > 0) worker_.all_stop = true;
  co_return read();
}

}  // namespace skein
