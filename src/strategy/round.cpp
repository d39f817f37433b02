#include "strategy/round.h"

#include <cmath>
#include <utility>

namespace skein {
namespace {

// Counts travel as two floats, so that sums stay whole numbers.
constexpr std::int64_t kHalf = 4096;

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
  const std::int64_t low = own.samples % kHalf, high = own.samples / kHalf;
  row[kLow] = static_cast<float>(low);
  row[kHigh] = static_cast<float>(high);
  row[kFigure] = static_cast<float>(own.figure);
  row[kSettling] = static_cast<float>(own.settling);
  row[kStop] = worker_.wants_to_stop ? 1 : 0;
}

RoundNotes Round::read() {
  const Span row = notes_->span();
  if (row[kStop] > 0) worker_.all_stop = true;
  return {std::llround(row[kLow]) + kHalf * std::llround(row[kHigh]),
          static_cast<double>(row[kFigure]), static_cast<int>(std::lround(row[kSettling]))};
}

void Round::post(const RoundNotes& own) {
  write(own);
  sending_ = ScopedJob(worker_.loop().spawn(send()));
}

// Where only time is simulated the values have no memory, so the notes are a message of their own.
Task<> Round::send() {
  const Time begin = worker_.loop().now();
  std::vector<Task<>> all;
  for (const Span values : values_)
    all.push_back(worker_.fabric().all_reduce(values_channel_, values, worker_.deadline()));
  all.push_back(
      worker_.fabric().all_reduce_small(notes_channel_, notes_->span(), worker_.deadline()));
  co_await all_of(worker_.loop(), std::move(all));
  worker_.trace().span(Lane::all_reduce, "round", begin, worker_.loop().now());
}

Task<RoundNotes> Round::take() {
  co_await sending_->join();
  sending_ = ScopedJob();
  co_return read();
}

Task<RoundNotes> Round::ask(const RoundNotes& own) {
  write(own);
  co_await worker_.fabric().all_reduce_small(notes_channel_, notes_->span(), worker_.deadline());
  co_return read();
}

}  // namespace skein
