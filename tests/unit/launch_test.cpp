#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "launch/keepalive.h"
#include "launch/outbox.h"
#include "launch/relay.h"
#include "launch/report.h"
#include "observe/board.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// Runs `body` in a child process and returns its wait status.
template <typename Body>
int in_child(Body body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

Getenv board_variable(const std::string& value) {
  return [value](const char* name) {
    return std::string(name) == "SKEIN_BOARD" ? value.c_str() : nullptr;
  };
}

TEST(Board, StartsEmpty) {
  const Board board = Board::create(3);
  EXPECT_EQ(board.size(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    const BoardRecord record = board.read(rank);
    EXPECT_EQ(record.pid, 0);
    EXPECT_EQ(record.phase, Phase::starting);
    EXPECT_EQ(record.waiting_for, -1);
    EXPECT_EQ(record.lost_peer, -1);
    EXPECT_EQ(record.operation, "");
    EXPECT_EQ(record.failure, "");
  }
}

TEST(Board, ReadsBackWhatWasWritten) {
  auto clock = std::make_shared<ManualClock>();
  clock->advance_to(Time(5s));
  Board board = Board::create(2, 1, clock);
  board.sign_in();
  board.set_step(1204, 38'528);
  board.set_phase(Phase::backward);
  board.set_waiting(0, "an operation with quite a long name");
  BoardRecord record = board.read(1);
  EXPECT_EQ(record.pid, getpid());
  EXPECT_EQ(record.step, 1204);
  EXPECT_EQ(record.samples, 38'528);
  EXPECT_EQ(record.phase, Phase::backward);
  EXPECT_EQ(record.waiting_for, 0);
  EXPECT_EQ(record.operation, "an operation with quite a long ");  // cut at 31
  EXPECT_EQ(record.changed, Time(5s));
  EXPECT_EQ(board.read(0).pid, 0);
  board.clear_waiting();
  record = board.read(1);
  EXPECT_EQ(record.waiting_for, -1);
  EXPECT_EQ(record.operation, "");
}

TEST(Board, TheFirstFailureStays) {
  auto clock = std::make_shared<ManualClock>();
  Board board = Board::create(1, 0, clock);
  board.set_phase(Phase::update);
  board.set_waiting(2, "all_gather");
  clock->advance_to(Time(7s));
  board.fail(std::string(1000, 'x'), 2);
  clock->advance_to(Time(8s));
  board.fail("a consequence", 1);
  board.set_phase(Phase::saving);
  board.clear_waiting();
  const BoardRecord record = board.read(0);
  EXPECT_EQ(record.phase, Phase::failed);
  EXPECT_EQ(record.failed_in, Phase::update);
  EXPECT_EQ(record.failure, std::string(511, 'x'));
  EXPECT_EQ(record.lost_peer, 2);
  EXPECT_EQ(record.failed_at, Time(7s));
  EXPECT_EQ(record.waiting_for, 2);
  EXPECT_EQ(record.operation, "all_gather");
}

TEST(Board, ShowsThePhaseWithinAPhaseAndThatInWhichAnErrorCame) {
  Board board = Board::create(1);
  board.set_phase(Phase::forward);
  {
    const PhaseScope saving(board, Phase::saving);
    {
      const PhaseScope flushing(board, Phase::flushing);
      EXPECT_STREQ(phase_name(board.read(0).phase), "flush");
    }
    EXPECT_EQ(board.read(0).phase, Phase::saving);
  }
  EXPECT_EQ(board.read(0).phase, Phase::forward);
  try {
    const PhaseScope loading(board, Phase::loading);
    throw Error("no such file");
  } catch (const Error& error) {
    board.fail(error.what());
  }
  EXPECT_EQ(board.read(0).failed_in, Phase::loading);
  EXPECT_STREQ(phase_name(Phase::loading), "loading a model");
}

TEST(Board, KeepsWhatIsKnownOfAWorkerThatLeaves) {
  auto clock = std::make_shared<ManualClock>();
  Board board = Board::create(1, 0, clock);
  board.set_phase(Phase::forward);
  board.lose(3);
  clock->advance_to(Time(7s));
  board.leave();
  BoardRecord record = board.read(0);
  EXPECT_EQ(record.phase, Phase::left);
  EXPECT_EQ(record.failed_in, Phase::forward);
  EXPECT_EQ(record.failed_at, Time(7s));
  EXPECT_EQ(record.lost_peer, 3);
  board.sign_in();
  EXPECT_EQ(board.read(0).phase, Phase::starting) << "it is back";
  board.fail("of its own");
  board.leave();
  record = board.read(0);
  EXPECT_EQ(record.phase, Phase::failed);
  EXPECT_EQ(record.lost_peer, -1);
}

TEST(Board, OutlivesAWorkerThatIsKilled) {
  const Board board = Board::create(4);
  const int status = in_child([&] {
    auto mine = Board::inherit(board_variable(std::to_string(board.descriptor())), 2);
    mine->set_step(17, 544);
    mine->set_phase(Phase::forward);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const BoardRecord record = board.read(2);
  EXPECT_GT(record.pid, 0);
  EXPECT_NE(record.pid, getpid());
  EXPECT_EQ(record.step, 17);
  EXPECT_EQ(record.phase, Phase::forward);
}

// A child process that is killed with the object.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) : pid_(fork()) {
    if (pid_ != 0) return;
    body();
    _exit(0);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

Board board_of_rank_1(const Board& board) {
  return std::move(*Board::inherit(board_variable(std::to_string(board.descriptor())), 1));
}

TEST(Board, CopiesAreConsistent) {
  // Two writing threads that keep step and samples equal, killed somewhere, and a reader.
  const Board board = Board::create(2);
  Child writer([&] {
    Board mine = board_of_rank_1(board);
    const auto write = [&](std::int64_t from) {
      for (std::int64_t i = from;; i += 2) mine.set_step(i, i);
    };
    std::thread other(write, 1);
    write(2);
  });
  std::int64_t seen = 0;
  for (int i = 0; i < 20'000 || seen < 1000; ++i) {
    const BoardRecord record = board.read(1);
    ASSERT_EQ(record.step, record.samples);
    seen = record.step;
  }
  writer.end();
  const BoardRecord last = board.read(1);
  EXPECT_EQ(last.step, last.samples) << "of a writer that died half way";
}

// As when a script starts a worker again after it was killed in the middle of writing.
TEST(Board, IsWrittenInPlaceOfAWorkerThatDiedWhileWriting) {
  const Board board = Board::create(2);
  for (int round = 1; round <= 8; ++round) {
    Child writer([&] {
      Board mine = board_of_rank_1(board);
      mine.set_step(round, round);
      for (;;) mine.set_waiting(0, "a name that is as long as can be");
    });
    while (board.read(1).step != round) std::this_thread::yield();
    std::this_thread::sleep_for(2ms);
    writer.end();
    const int status = in_child([&] {
      alarm(600);
      board_of_rank_1(board).set_step(-round, -round);
    });
    ASSERT_TRUE(WIFEXITED(status)) << "it hangs";
    EXPECT_EQ(board.read(1).step, -round);
  }
}

TEST(Board, InheritsOnlyWhatIsABoard) {
  EXPECT_FALSE(Board::inherit([](const char*) { return nullptr; }, 0));
  EXPECT_FALSE(Board::inherit(board_variable("987654"), 0));  // not open
  const int other = open("/dev/zero", O_RDWR);
  EXPECT_FALSE(Board::inherit(board_variable(std::to_string(other)), 0));
  close(other);
  EXPECT_THROW(Board::inherit(board_variable("seven"), 0), ConfigError);
  const Board board = Board::create(2);
  const auto variable = board_variable(std::to_string(board.descriptor()));
  EXPECT_FALSE(Board::inherit(variable, 2));  // there is no such rank on it
  EXPECT_TRUE(Board::inherit(variable, 1));
}

TEST(Board, JoinFallsBackToAPrivateOne) {
  Board board = Board::join([](const char*) { return nullptr; }, 1, 3);
  board.set_step(4, 5);
  EXPECT_EQ(board.read(1).step, 4);
  EXPECT_EQ(board.size(), 3);
}

WorkerOutcome ended(WorkerEnd end, Time at) {
  WorkerOutcome out;
  out.end = end;
  out.ended_at = at;
  return out;
}

WorkerOutcome training(std::int64_t step, Phase phase) {
  WorkerOutcome out;
  out.record.pid = 1;
  out.record.step = step;
  out.record.phase = phase;
  return out;
}

TEST(RootCause, IsTheFirstThatFailedByItself) {
  std::vector<WorkerOutcome> workers(3);
  EXPECT_EQ(root_cause(workers), -1);
  workers[0] = ended({0, 1}, Time(3s));
  workers[2] = ended({0, 1}, Time(2s));
  EXPECT_EQ(root_cause(workers), 2);
  workers[1] = ended({SIGTERM, 0}, Time(1s));
  workers[1].stopped = true;
  EXPECT_EQ(root_cause(workers), 2);
}

TEST(RootCause, LostPeerIsAConsequence) {
  std::vector<WorkerOutcome> workers(3);
  workers[0] = ended({0, 1}, Time(1s));
  workers[0].record.pid = 1;
  workers[0].record.phase = Phase::failed;
  workers[0].record.failed_at = Time(1s);
  workers[0].record.lost_peer = 2;
  EXPECT_EQ(root_cause(workers), 0);
  workers[2] = ended({SIGKILL, 0}, Time(2s));  // seen later than its consequence
  EXPECT_EQ(root_cause(workers), 2);
}

// Their programs catch their errors and say nothing: all end with the same code, in any order.
TEST(RootCause, IsTheOneThatLeftIfTheOthersOnlyLostIt) {
  std::vector<WorkerOutcome> workers(4);
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    workers[rank] = ended({0, 1}, Time(1s));
    workers[rank].record.pid = 1;
    workers[rank].record.phase = Phase::left;
    workers[rank].record.failed_at = Time(rank == 2 ? 900ms : 800ms);
  }
  workers[0].record.lost_peer = 1;
  workers[1].record.lost_peer = 2;
  workers[3].record.lost_peer = 0;
  EXPECT_EQ(root_cause(workers), 2);
  // It was slow to end, and the launcher did not wait for it.
  workers[2].end = {SIGTERM, 0};
  workers[2].stopped = true;
  EXPECT_EQ(root_cause(workers), 2);
  EXPECT_EQ(failure_report(workers, 2, "", "").rfind("skein: rank 2 left the run at step 0", 0), 0u)
      << failure_report(workers, 2, "", "");
}

// Rank 0 has failed because it lost `peer`.
WorkerOutcome that_lost(int peer, Time at = Time(1s)) {
  WorkerOutcome out = ended({0, 1}, at);
  out.record.pid = 1;
  out.record.step = 5;
  out.record.phase = Phase::failed;
  out.record.failed_at = at;
  out.record.failure = "rank " + std::to_string(peer) + " has been silent for 60 s";
  out.record.lost_peer = peer;
  return out;
}

// It still ran when the launcher told it to end.
WorkerOutcome that_still_ran(Phase phase, int waiting_for = -1) {
  WorkerOutcome out = ended({SIGTERM, 0}, Time(2s));
  out.stopped = out.still_ran = true;
  out.record.pid = 1;
  out.record.step = 5;
  out.record.phase = phase;
  out.record.waiting_for = waiting_for;
  if (waiting_for >= 0) out.record.operation = "reduce_scatter";
  return out;
}

TEST(RootCause, IsThePeerThatFellSilent) {
  const std::vector<WorkerOutcome> workers{that_lost(1), that_still_ran(Phase::forward)};
  EXPECT_EQ(root_cause(workers), 1);
  EXPECT_EQ(failure_report(workers, 1, "", ""),
            "skein: rank 1 did not answer the others at step 5 (forward); the run has ended.\n"
            "  error   rank 0: rank 1 has been silent for 60 s\n"
            "  rank 0  step 5  lost rank 1\n");
}

TEST(RootCause, IsThePeerThatWasSuspendedWhileItWaited) {
  std::vector<WorkerOutcome> workers{that_lost(1), that_still_ran(Phase::waiting, 0)};
  EXPECT_EQ(root_cause(workers), 0) << "two that waited for each other: who gave up first";
  workers[1].suspended = true;
  EXPECT_EQ(root_cause(workers), 1);
  EXPECT_EQ(
      failure_report(workers, 1, "", "")
          .rfind("skein: rank 1 was suspended, as by SIGSTOP, at step 5 (waiting); the run has "
                 "ended.\n",
                 0),
      0u)
      << failure_report(workers, 1, "", "");
}

TEST(RootCause, IsTheOneForWhomThoseThatWereLostHadWaited) {
  const std::vector<WorkerOutcome> workers{that_lost(1), that_still_ran(Phase::waiting, 2),
                                           that_still_ran(Phase::data)};
  EXPECT_EQ(root_cause(workers), 2);
}

TEST(RootCause, IsTheOneThatLeftWithExitCodeZero) {
  std::vector<WorkerOutcome> workers{that_lost(1, Time(2s)), ended({0, 0}, Time(1s)),
                                     that_lost(0, Time(3s))};
  workers[1].record.pid = 1;
  workers[1].record.step = 5;
  workers[1].record.phase = Phase::backward;
  EXPECT_EQ(root_cause(workers), 1);
  EXPECT_EQ(failure_report(workers, 1, "", "")
                .rfind("skein: rank 1 left the others, with exit code 0, at step 5 (backward); "
                       "the run has ended.\n  error   rank 0: rank 1 has been silent",
                       0),
            0u)
      << failure_report(workers, 1, "", "");
  workers[1].record.phase = Phase::left;
  EXPECT_EQ(root_cause(workers), 1) << "it has given up its World";
  workers[1].record.phase = Phase::done;
  EXPECT_EQ(root_cause(workers), 0) << "its work was done";
  workers[1].record.phase = Phase::left;
  workers[1].record.lost_peer = 2;
  EXPECT_EQ(root_cause(workers), 0) << "it had lost somebody itself";
}

TEST(RootCause, IsNotOneThatHadLeftWhenItsWorkWasDone) {
  std::vector<WorkerOutcome> workers(2);
  workers[0] = ended({0, 1}, Time(3s));
  workers[1] = ended({SIGTERM, 0}, Time(4s));
  workers[1].stopped = true;
  workers[1].record.pid = 1;
  workers[1].record.phase = Phase::left;
  workers[1].record.failed_at = Time(1s);
  EXPECT_EQ(root_cause(workers), 0);
}

TEST(RootCause, TimeOfFailureGoesBeforeTimeOfEnd) {
  // Rank 1 failed first but took long to end.
  std::vector<WorkerOutcome> workers(2);
  workers[0] = ended({0, 1}, Time(3s));
  workers[1] = ended({0, 1}, Time(9s));
  workers[1].stopped = true;
  workers[1].record.pid = 1;
  workers[1].record.phase = Phase::failed;
  workers[1].record.failed_at = Time(1s);
  EXPECT_EQ(root_cause(workers), 1);
}

TEST(Report, TellsWhoFailedAndWhoWaited) {
  std::vector<WorkerOutcome> workers{training(1205, Phase::waiting), training(1205, Phase::failed),
                                     training(1204, Phase::backward),
                                     training(1204, Phase::backward)};
  for (int rank : {0, 1}) {
    workers[static_cast<std::size_t>(rank)].record.waiting_for = 2;
    workers[static_cast<std::size_t>(rank)].record.operation = "reduce_scatter";
  }
  workers[2].end.signal = SIGKILL;
  EXPECT_EQ(failure_report(workers, 2, "/x/logs/rank-*.log", "skein train --resume out/x"),
            "skein: rank 2 was killed by SIGKILL at step 1204 (backward); the run has ended.\n"
            "  rank 0  step 1205  waiting for rank 2 in reduce_scatter\n"
            "  rank 1  step 1205  waiting for rank 2 in reduce_scatter\n"
            "  rank 3  step 1204  backward\n"
            "  logs    /x/logs/rank-*.log\n"
            "  resume  skein train --resume out/x\n");
}

TEST(Report, ShowsTheErrorOfTheFirst) {
  std::vector<WorkerOutcome> workers{training(3, Phase::failed), training(3, Phase::forward)};
  workers[0].end.code = 1;
  workers[0].record.failed_in = Phase::data;
  workers[0].record.failure = "cannot read 'x.bin'\nit is truncated";
  workers[0].log_tail = "not needed";
  EXPECT_EQ(failure_report(workers, 0, "", ""),
            "skein: rank 0 failed at step 3 (loading data); the run has ended.\n"
            "  error   cannot read 'x.bin'\n"
            "          it is truncated\n"
            "  rank 1  step 3  forward\n");
}

TEST(Relay, PassesWholeLinesAndKeepsALog) {
  int in[2], out[2], log[2];
  ASSERT_EQ(pipe(in) + pipe(out) + pipe(log), 0);
  const auto drain = [](int descriptor) {
    char buffer[256];
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    return std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  };
  for (const int* ends : {out, log}) fcntl(ends[0], F_SETFL, O_NONBLOCK);
  Outbox to(out[1]);
  Relay relay(FileDescriptor(in[0]), to, "[7] ", log[1]);
  const auto pump = [&] {
    relay.pump();
    EXPECT_TRUE(to.flush());
  };
  ASSERT_EQ(write(in[1], "one\ntw", 6), 6);
  pump();
  EXPECT_EQ(drain(out[0]), "[7] one\n");
  ASSERT_EQ(write(in[1], "o\nrest", 6), 6);
  pump();
  EXPECT_EQ(drain(out[0]), "[7] two\n");
  EXPECT_GE(relay.descriptor(), 0);
  close(in[1]);
  pump();
  EXPECT_EQ(drain(out[0]), "[7] rest\n");
  EXPECT_LT(relay.descriptor(), 0);
  EXPECT_EQ(drain(log[0]), "one\ntwo\nrest");
  for (const int* ends : {out, log}) close(ends[0]), close(ends[1]);
}

// What a reader gets that takes everything until nothing is there.
std::string all_in(int descriptor) {
  std::string out;
  char buffer[4096];
  make_nonblocking(descriptor);
  for (ssize_t count; (count = read(descriptor, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(count));
  return out;
}

std::string numbered_lines(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "line " + std::to_string(i) + "\n";
  return out;
}

TEST(Outbox, NeverBlocksAndLosesNothingOnADescriptorThatBlocks) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor reader(ends[0]), writer(ends[1]);
  const std::string sent = numbered_lines(100'000);
  Outbox outbox(writer.get());
  outbox.add(sent);
  EXPECT_TRUE(outbox.flush());
  EXPECT_GT(outbox.size(), sent.size() / 2) << "a pipe does not take so much";
  std::string got = all_in(reader.get());
  EXPECT_EQ(got.back(), '\n') << "lines are written as a whole";
  while (outbox.size() > 0) {
    ASSERT_TRUE(outbox.flush());
    got += all_in(reader.get());
  }
  EXPECT_TRUE(got == sent);
  EXPECT_EQ(fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Outbox, CopiesAPipeWithoutChangingItForOthers) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor reader(ends[0]), writer(ends[1]);
  const FileDescriptor copy = copy_for_writing(writer.get());
  EXPECT_NE(fcntl(copy.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(fcntl(writer.get(), F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(write(copy.get(), "x", 1), 1);
  EXPECT_EQ(all_in(reader.get()), "x");
}

TEST(Relay, HoldsABoundedAmountWhileNobodyTakesIt) {
  int in[2], out[2];
  ASSERT_EQ(pipe(in) + pipe(out), 0);
  const FileDescriptor reader(out[0]), writer(out[1]);
  Outbox to(out[1]);
  Relay relay(FileDescriptor(in[0]), to, "[0] ");
  make_nonblocking(in[1]);
  const std::string lines = numbered_lines(1000);
  std::size_t written = 0;
  for (ssize_t count; (count = write(in[1], lines.data(), lines.size())) > 0;) {
    written += static_cast<std::size_t>(count);
    relay.pump();
    to.flush();
    ASSERT_LT(to.size(), 2 * kMostUnread);
  }
  EXPECT_FALSE(relay.has_room()) << "the worker waits now";
  EXPECT_GT(written, kMostUnread / 2);
  close(in[1]);
  std::string got;
  while (relay.descriptor() >= 0 || to.size() > 0) {
    relay.pump();
    to.flush();
    got += all_in(reader.get());
  }
  EXPECT_EQ(got.rfind("[0] line 0\n[0] line 1\n", 0), 0u);
  EXPECT_GT(got.size(), written) << "all of it, and prefixes";
}

TEST(Relay, PassesOnPiecesOfLinesWhereThereIsNoPrefix) {
  int in[2], out[2];
  ASSERT_EQ(pipe(in) + pipe(out), 0);
  const FileDescriptor reader(out[0]), writer(out[1]), worker(in[1]);
  Outbox to(out[1]);
  Relay relay(FileDescriptor(in[0]), to, "");
  ASSERT_EQ(write(in[1], "10 %", 4), 4);
  relay.pump();
  to.flush();
  EXPECT_EQ(all_in(reader.get()), "10 %");
}

TEST(Keepalive, TakesTheOtherEndForGoneAfterTheWholeLimitOnly) {
  Keepalive alive(6s, Time(100s));
  for (int second = 1; second < 6; ++second) EXPECT_FALSE(alive.lost(Time(100s + 1s * second)));
  EXPECT_TRUE(alive.lost(Time(106s)));
  alive.heard(Time(106s));
  EXPECT_FALSE(alive.lost(Time(107s)));
}

TEST(Keepalive, SendsAtLeastOncePerInterval) {
  Keepalive alive(6s, Time(100s));
  EXPECT_FALSE(alive.due(Time(100s + 999ms)));
  EXPECT_TRUE(alive.due(Time(101s)));
  alive.sent(Time(101s));
  EXPECT_FALSE(alive.due(Time(101s + 999ms)));
  EXPECT_LE(alive.next_look(), Time(102s));
}

TEST(Keepalive, DoesNotCountTheTimeInWhichThisProcessWasStopped) {
  Keepalive alive(6s, Time(100s));
  EXPECT_FALSE(alive.lost(Time(101s)));
  EXPECT_FALSE(alive.lost(Time(1000s))) << "it slept, and the other may have spoken meanwhile";
  for (int second = 1; second < 5; ++second) EXPECT_FALSE(alive.lost(Time(1000s + 1s * second)));
  EXPECT_TRUE(alive.lost(Time(1006s)));
}

TEST(Keepalive, WaitsForEverForAnEndThatIsSuspended) {
  Keepalive alive(6s, Time(100s));
  alive.set_limit(0s);
  for (int second = 1; second < 100; ++second) EXPECT_FALSE(alive.lost(Time(100s + 1s * second)));
  EXPECT_TRUE(alive.due(Time(200s))) << "this end still says that it lives";
  alive.set_limit(6s);
  alive.heard(Time(200s));
  EXPECT_FALSE(alive.lost(Time(200s)));
  for (int second = 1; second < 6; ++second) alive.lost(Time(200s + 1s * second));
  EXPECT_TRUE(alive.lost(Time(206s)));
}

}  // namespace
}  // namespace skein
