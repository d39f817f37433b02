#include "fabric/mpi/session.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/units.h"
#include "fabric/mpi/watchdog.h"
#include "skein/error.h"

namespace skein::mpi {
namespace {

const char* name_of_level(int level) {
  return level == MPI_THREAD_SINGLE     ? "MPI_THREAD_SINGLE"
         : level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                        : "another level";
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw IoError(fmt::format("{}: {}", what, text_of(code)));
}

}  // namespace

// Never destroyed: what is left of it is needed when the process exits.
Session& Session::of_this_process() {
  static Session& session = *new Session;
  return session;
}

void Session::start(Duration patience) {
  int begun = 0, over = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  if (over)
    throw ConfigError(
        "the mpi fabric cannot be made: the program has called MPI_Finalize; expected that it "
        "joins before");
  if (!begun) {
    const Watchdog watchdog(
        fmt::format("MPI_Init has not ended for {}: not all the workers that were started have "
                    "called it",
                    print_duration(patience)),
        patience);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    for (MPI_Comm each : {MPI_COMM_WORLD, MPI_COMM_SELF})
      MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
    ::on_exit(at_exit, this);
  }
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    throw ConfigError(fmt::format(
        "the mpi fabric calls MPI from two threads in turn, and MPI has been started with {}: "
        "expected MPI_Init_thread with MPI_THREAD_SERIALIZED or more",
        name_of_level(level)));
  if (std::exchange(ready_, true)) return;
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, this),
        "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

MPI_Comm Session::communicator(Duration patience) {
  tidy();
  const SteadyClock clock;
  const Time end = clock.now() + patience;
  auto out = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(MPI_COMM_WORLD, out.get(), &request), "MPI_Comm_idup");
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
    if (done) return *out;
    if (clock.now() >= end) {
      (void)out.release();  // MPI may still write there
      throw IoError(fmt::format("not all workers have joined within {}", print_duration(patience)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Session::keep(std::unique_ptr<Farewell> farewell) {
  --fabrics_;
  farewells_.push_back(std::move(farewell));
  tidy();
}

bool Session::tidy() {
  std::erase_if(farewells_, [](const auto& each) { return each->poll(); });
  return farewells_.empty();
}

bool Session::end_farewells() {
  for (const auto& each : farewells_) {
    int who = -1;
    if (each->wait(who)) continue;
    fmt::print(stderr, "skein: this worker ends without MPI_Finalize: rank {} has not left\n", who);
    return false;
  }
  farewells_.clear();
  return true;
}

// Before MPI ends, whoever ends it.
int Session::at_finalize(MPI_Comm, int, void*, void* session) {
  static_cast<Session*>(session)->end_farewells();
  return MPI_SUCCESS;
}

// MPI_Finalize waits for all ranks: one that ends in the middle of something must not call it, nor
// one that knows of another that may never come to it.
void Session::at_exit(int status, void* argument) {
  auto& session = *static_cast<Session*>(argument);
  int over = 0;
  MPI_Finalized(&over);
  if (status != 0 || over || session.fabrics_ > 0 || ::getpid() != session.process_) return;
  if (session.end_farewells()) MPI_Finalize();
}

}  // namespace skein::mpi
