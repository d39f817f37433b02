#include "core/worker_time.h"

#include <algorithm>
#include <utility>

namespace skein {
namespace {

// Whether the thread has nothing of its own to do in such a span.
bool rests(Lane lane) {
  return lane == Lane::wait || lane == Lane::evaluation || lane == Lane::checkpoint;
}

}  // namespace

void WorkerTime::pass_on_to(Trace* target) {
  const std::lock_guard lock(mutex_);
  target_ = target;
}

void WorkerTime::span(Lane lane, std::string_view name, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  switch (lane) {
    case Lane::update:
      updates_.push_back({std::string(name), {begin, end}});
      return;
    case Lane::forward:
    case Lane::backward:
    case Lane::loading:
    case Lane::wait:
    case Lane::evaluation:
    case Lane::checkpoint:
      own_span(lane, name, {begin, end});
      return;
    case Lane::all_reduce:
    case Lane::reduce_scatter:
    case Lane::all_gather:
    case Lane::hidden_update:
    case Lane::device_compute:
    case Lane::device_sums:
      pass_on(lane, name, {begin, end});
  }
}

Duration WorkerTime::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

Duration WorkerTime::updating() const {
  const std::lock_guard lock(mutex_);
  return updating_;
}

void WorkerTime::own_span(Lane lane, std::string_view name, Piece whole) {
  std::vector<Piece> free{whole};
  for (const Piece& wait : waits_) free = without(free, wait);
  place_updates(lane, free);
  for (const Piece& piece : free) {
    if (lane == Lane::wait) waiting_ += piece.end - piece.begin;
    pass_on(lane, name, piece);
  }
  // Only waits lie within other spans, and only a trace asks for those.
  if (lane != Lane::wait)
    std::erase_if(waits_, [&](const Piece& wait) { return wait.end <= whole.end; });
  else if (target_ != nullptr)
    waits_.push_back(whole);
}

// Takes what the updates took out of `free`, where the thread had nothing else to do.
void WorkerTime::place_updates(Lane lane, std::vector<Piece>& free) {
  for (const Update& update : std::exchange(updates_, {})) {
    std::vector<Piece> hidden{update.piece};
    if (rests(lane)) {
      for (const Piece& piece : free) {
        const Piece common{std::max(piece.begin, update.piece.begin),
                           std::min(piece.end, update.piece.end)};
        if (common.begin >= common.end) continue;
        if (lane == Lane::wait) updating_ += common.end - common.begin;
        pass_on(Lane::update, update.name, common);
        hidden = without(hidden, common);
      }
      free = without(free, update.piece);
    }
    for (const Piece& piece : hidden) pass_on(Lane::hidden_update, update.name, piece);
  }
}

void WorkerTime::pass_on(Lane lane, std::string_view name, Piece piece) {
  if (target_ != nullptr && piece.begin < piece.end)
    target_->span(lane, name, piece.begin, piece.end);
}

std::vector<WorkerTime::Piece> WorkerTime::without(const std::vector<Piece>& pieces, Piece part) {
  std::vector<Piece> out;
  out.reserve(pieces.size() + 1);
  for (const Piece& piece : pieces) {
    if (part.end <= piece.begin || piece.end <= part.begin) {
      out.push_back(piece);
      continue;
    }
    if (piece.begin < part.begin) out.push_back({piece.begin, part.begin});
    if (part.end < piece.end) out.push_back({part.end, piece.end});
  }
  return out;
}

}  // namespace skein
