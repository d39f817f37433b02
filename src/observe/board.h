// The status board: what each worker of a run on this host is doing, in memory that the launcher
// shares with its workers. It outlives any of them, so that the launcher can say what a worker was
// doing when it was killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/getenv.h"

namespace skein {

enum class Phase : std::int32_t {
  starting,
  data,
  forward,
  backward,
  waiting,
  update,
  evaluating,
  saving,
  done,
  failed,
  left,  // the worker has given up its World
  flushing,
  loading
};

const char* phase_name(Phase phase);

// A consistent copy of one worker's record.
struct BoardRecord {
  pid_t pid = 0;  // 0: this worker has not come to the board, so nothing else here says anything
  std::int64_t step = 0;
  std::int64_t samples = 0;
  Phase phase = Phase::starting;
  int waiting_for = -1;   // the rank whose part is missing, or -1
  std::string operation;  // what is waited in, such as "reduce_scatter"; else empty
  Time changed{};         // of the last change to any field

  // Set when phase is failed or left.
  std::string failure;                // the error's message
  Phase failed_in = Phase::starting;  // what it was doing when it failed or left
  Time failed_at{};

  int lost_peer =
      -1;  // the rank whose loss was the error, or the last that an error told of, or -1
};

// One record per rank. The writing functions write this worker's own; they take well under a
// microsecond and may be called from any of its threads. Texts that are too long are cut.
// Reading is possible from any process at any time, and gives the last record that was whole: also
// of a worker that was killed while writing.
class Board {
 public:
  using ClockPointer = std::shared_ptr<const Clock>;

  // A new board for `size` ranks, written as `rank`. Throws Error when there is no memory for it.
  static Board create(int size, int rank = 0, ClockPointer clock = std::make_shared<SteadyClock>());

  // The board that the launcher left in descriptor SKEIN_BOARD; writes the pid of this process as
  // rank `rank`'s. Nullopt when there is none: another launcher, or a script in between that has
  // closed the descriptor or given it another use. ConfigError when SKEIN_BOARD is not a number.
  static std::optional<Board> inherit(const Getenv& getenv, int rank,
                                      ClockPointer clock = std::make_shared<SteadyClock>());

  // The launcher's board, or else a private one that nobody reads.
  static Board join(const Getenv& getenv, int rank, int size);

  Board(Board&&) noexcept;
  Board& operator=(Board&&) noexcept;
  ~Board();

  int size() const;
  int descriptor() const;  // closes on exec; a launcher undoes that in the child
  BoardRecord read(int rank) const;

  void sign_in();  // leaves this process's pid; one that had left is back
  void set_step(std::int64_t step, std::int64_t samples);
  Phase set_phase(Phase phase);                            // returns the one before
  void set_waiting(int peer, std::string_view operation);  // peer -1: not for one rank
  void clear_waiting();

  // Only the first failure is kept, and the record stays as it is then: what follows is a
  // consequence. `lost_peer` is the rank whose loss the failure is about, or -1.
  void fail(std::string_view message, int lost_peer = -1);

  // An error has told the program that `peer` is lost. What the program makes of it is not known:
  // if it ends in failure and says nothing more, this was why.
  void lose(int peer);

  // The worker leaves the run, because it is over or for a reason that only its program knows. No
  // effect when it is done or has failed.
  void leave();

 private:
  struct Memory;
  explicit Board(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

// A phase within another: that one is shown again afterwards. If an exception ends it, it was what
// the worker was doing when it failed, and stays.
class PhaseScope {
 public:
  PhaseScope(Board& board, Phase phase) : board_(board), before_(board.set_phase(phase)) {}
  ~PhaseScope() {
    if (std::uncaught_exceptions() == exceptions_) board_.set_phase(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Board& board_;
  Phase before_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace skein
