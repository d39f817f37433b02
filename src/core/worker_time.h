// What a worker's own thread does with its time, each moment once.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/trace.h"

namespace skein {

// Stands between those that report spans and a trace that shows them, and adds up how long the
// worker waited. Thread-safe.
//
// Reported spans of a worker's own thread lie within each other: a read that waits lies within
// forward, and an update may be made while the thread waits for it. They are passed on without
// overlaps, in pieces where need be:
// - forward, backward and loading without the waits in them;
// - a wait, an evaluation or a checkpoint without the updates that were made meanwhile;
// - an update as Lane::update where the thread rested in one of these three, and elsewhere as
//   Lane::hidden_update: it was made beside something else.
// All other lanes are passed on as they are.
//
// A span is reported when it has ended: a wait at once, what it lies in later, so what lies within
// a span is known by then. Updates are passed on when the span that they lie in is reported.
class WorkerTime final : public Trace {
 public:
  // Null, as at first: spans go nowhere. The target must outlive its use.
  void pass_on_to(Trace* target);

  void span(Lane lane, std::string_view name, Time begin, Time end) override;

  // In spans of Lane::wait so far: with no update being made, and with one. Together they are the
  // length of these spans.
  Duration waiting() const;
  Duration updating() const;

 private:
  struct Piece {
    Time begin, end;
  };
  struct Update {
    std::string name;
    Piece piece;
  };

  void own_span(Lane lane, std::string_view name, Piece whole);
  void place_updates(Lane lane, std::vector<Piece>& free);
  void pass_on(Lane lane, std::string_view name, Piece piece);
  static std::vector<Piece> without(const std::vector<Piece>& pieces, Piece part);

  mutable std::mutex mutex_;
  Trace* target_ = nullptr;
  std::vector<Update> updates_;  // which have not been passed on
  std::vector<Piece> waits_;     // after the end of the last span that is no wait
  Duration waiting_{}, updating_{};
};

}  // namespace skein
