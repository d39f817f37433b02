// The workers of this host.
#pragma once

#include "launch/meeting_place.h"
#include "launch/worker_group.h"

namespace skein {

// Workers get SKEIN_RANK, SKEIN_SIZE, SKEIN_LOCAL_RANK, SKEIN_LOCAL_SIZE, SKEIN_RUN, SKEIN_BOARD
// and, where the plan has them, SKEIN_RENDEZVOUS and SKEIN_SECRET_FILE.
class LocalGroup final : public WorkerGroup {
 public:
  explicit LocalGroup(WorkerPlan plan);

  void start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) override;
  int alive() const override { return crew_.alive(); }
  void watch(std::vector<pollfd>& watched) const override;
  std::optional<WorkerEnd> reap(int rank) override;
  BoardRecord record(int rank) const override { return board_.read(rank); }
  bool stopped(int rank) const override { return crew_.stopped(index(rank)); }
  void signal(int number) override { crew_.signal(number); }
  void kill_one(int rank) override { crew_.kill_one(index(rank)); }

 private:
  int index(int rank) const { return rank - plan_.first_rank; }
  std::vector<std::string> environment(int rank) const;

  WorkerPlan plan_;
  Board board_;
  std::optional<SecretFile> secret_;
  Crew crew_;  // last, so that it goes first: the workers use the rest
};

}  // namespace skein
