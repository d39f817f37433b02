// What the launcher says when a run has failed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "launch/crew.h"
#include "observe/board.h"

namespace skein {

// What is known of one worker when the run is over.
struct WorkerOutcome {
  WorkerEnd end;
  Time ended_at{};
  bool stopped = false;    // it ended after the launcher had told it to
  BoardRecord record;      // as it was before that
  bool still_ran = false;  // when the launcher told all to end, because another had failed
  bool suspended = false;  // likewise: it was stopped, as by SIGSTOP
  std::string host;        // where it was; empty: on this one
  std::string log_tail;    // the last lines it wrote, where the terminal has not shown them
};

// The rank whose failure brought the others down, or -1 when nobody failed by itself. It is the one
// that failed first, by the time on its board record or else by its end. But a rank that only lost
// a peer comes after every rank that failed in any other way, and after the peer that it lost if
// that one left the run, with exit code 0 too, or still ran and waited for nobody, suspended or
// not.
int root_cause(const std::vector<WorkerOutcome>& workers);

// "rank 3 was killed by SIGKILL at step 1204 (backward)", with its error if it left one.
std::string cause(const WorkerOutcome& worker, int rank);

// The one block, each line ended by a newline: who failed first and why, what the others were
// doing, and where to look on. `logs`, `resume` and what there is to say of restarts may be empty.
std::string failure_report(const std::vector<WorkerOutcome>& workers, int root,
                           const std::string& logs, const std::string& resume,
                           const std::string& restarts = "");

// One line: `rank` was lost, and the others go on.
std::string loss_report(const WorkerOutcome& worker, int rank);

// The message of `rank` alone, for an error that is the user's: it needs no circumstances.
std::string usage_report(const WorkerOutcome& worker, int rank);

}  // namespace skein
