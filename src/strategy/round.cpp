#include "strategy/round.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/packed.h"

namespace skein {

Round::Round(Worker& worker, std::vector<Span> values, Channel values_channel,
             Channel notes_channel)
    : worker_(worker),
      values_(std::move(values)),
      values_channel_(values_channel),
      notes_channel_(notes_channel) {}

void Round::merge(std::span<std::byte> into, std::span<const std::byte> from) {
  auto a = unpack<Record>(into);
  const auto b = unpack<Record>(from);
  a.samples += b.samples;
  a.settling += b.settling;
  a.carries += b.carries;
  a.stop |= b.stop;
  a.disagree |= b.disagree | (a.decision != b.decision ? 1 : 0);
  a.figure = std::bit_cast<std::uint64_t>(std::bit_cast<double>(a.figure) +
                                          std::bit_cast<double>(b.figure));
  a.slowest_ns = std::max(a.slowest_ns, b.slowest_ns);
  a.waited_ns += b.waited_ns;
  a.travel_ns = std::min(a.travel_ns, b.travel_ns);
  pack(into, a);
}

RoundNotes Round::read() const {
  return {.samples = notes_.samples,
          .figure = std::bit_cast<double>(notes_.figure),
          .settling = notes_.settling,
          .carries = notes_.carries,
          .decision = notes_.decision,
          .disagree = notes_.disagree != 0,
          .slowest = Duration(notes_.slowest_ns),
          .waited = Duration(notes_.waited_ns),
          .travel = Duration(notes_.travel_ns)};
}

void Round::post(const RoundNotes& own, const std::vector<Span>& values) {
  SKEIN_CHECK(!posted(), "a round was begun while another is on its way");
  notes_ = {own.samples,
            own.settling,
            own.carries,
            worker_.wants_to_stop ? 1 : 0,
            own.decision,
            own.disagree ? 1 : 0,
            std::bit_cast<std::uint64_t>(own.figure),
            own.slowest.count(),
            own.waited.count(),
            own.travel.count()};
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
  const Merge merging = merge;
  all.push_back(
      worker_.fabric().combine(notes_channel_, message_in(notes_), merging, worker_.limit()));
  co_await all_of(worker_.loop(), std::move(all));
  if (!carries && read().carries > 0) co_await all_of(worker_.loop(), sums(values));
  co_await worker_.complete();  // who asks whether it has arrived wants to use it at once
  travelled_ = worker_.loop().now() - begin;
  worker_.trace().span(Lane::all_reduce, "round", begin, worker_.loop().now());
}

Task<RoundNotes> Round::take() {
  co_await sending_->join();
  sending_ = ScopedJob();
  if (notes_.stop != 0) worker_.all_stop = true;
  co_return read();
}

}  // namespace skein
