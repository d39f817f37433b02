// What the workers of a fabric call together.
//
// Every call says in words what it is, and the workers compare that first: when they have called
// different things all of them learn so, by ConfigError, and may go on. When one does not come the
// others get IoError that says who, to what, and what those are doing instead. For the user's own
// thread; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/survivors.h"
#include "runtime/courier.h"
#include "runtime/roll_call.h"
#include "skein/workers.h"

namespace skein {

class Workers::Calls {
 public:
  using Row = std::vector<std::byte>;

  // Channels of the fabric's first block: these calls, sums over those who live, roll calls,
  // messages that are parts of calls, and a ring of all for means.
  enum : Channel {
    kOwnChannel,
    kUpChannel,
    kDownChannel,
    kQuestions,
    kAnswers,
    kPartsChannel,
    kRingChannel
  };

  // `names` says which rank of the world each rank is, as errors name it; `owner` is what a program
  // makes these calls on: "world" or "group".
  Calls(Fabric& fabric, Courier& courier, Duration patience, std::vector<int> names,
        std::string owner);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  // While it lives this worker's calls are parts of the user's `call`, and errors name that: of two
  // within each other the outer one. An empty `call` stands for code of the user's within one.
  class Scope {
   public:
    Scope(Calls& calls, std::string call);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { calls_.scope_ = std::move(before_); }

   private:
    Calls& calls_;
    std::string before_;
  };

  // Added to an error when workers have not come to the same call: what the program may do.
  void advise(std::string what) { advice_ = std::move(what); }

  // All workers make the same `call`. When this returns they have, and know what each has brought,
  // by rank: `own`, of at most kMostBrought bytes; nothing of one that took no part.
  static constexpr std::size_t kMostBrought = 32;
  std::vector<Row> meet(const std::string& call, std::span<const std::byte> own = {});

  // Every worker's `bytes`, by rank; none of a worker that took no part. All pass the same number.
  std::vector<Row> gather(const std::string& call, std::span<const std::byte> bytes);

  // Every worker's `text`, of whatever length.
  std::vector<std::string> gather_text(const std::string& call, const std::string& text);

  // The merge of all workers' `bytes`, of which all pass the same number; they are cut anywhere
  // between elements of 8 bytes.
  Row combine(const std::string& call, std::span<const std::byte> bytes, const Merge& merge);

  // The same in place, for who has met already.
  void combine_in_place(const std::string& call, std::span<std::byte> bytes, const Merge& merge);

  // Rank `root`'s bytes. ConfigError when there is no such rank, IoError when it is gone.
  Row broadcast(const std::string& call, std::span<const std::byte> bytes, int root);

  // Waits for a task that is a part of a call which all have met for.
  void wait(const std::string& call, Task<> task);

  // `task` as a part of the present scope, or else of `call`, which not all workers need make at
  // the same time: others who give up waiting for this worker learn that it is in that.
  Task<> inside(const std::string& call, Task<> task);

  // What a wait in such a task that came to its limit is to the user: the same error, with the call
  // and what the other workers are in instead. Asks them, at most for a second.
  IoError explain(const std::string& call, const TooLate& late);

  // From now on these are calls of the workers that live, and do not fail when one is lost. All
  // workers call it at the same place.
  void tolerate_losses();
  Survivors* survivors() { return survivors_.get(); }

  // Runs a sum over survivors, which is a part of `call`, to its end, and sees who took part. Says
  // on stderr who did not come in time.
  void wait_for_survivors(const std::string& call, Task<int> task);

  // Who took part in the last of these, by rank; all, where losses are not tolerated.
  const std::vector<bool>& present() const { return present_; }

  // Throws IoError when losses are tolerated and the others have gone on without this worker, which
  // was away too long: it must not write what they have written, or will.
  void check_company() const;

  // "world.sum()", say.
  std::string name_of(const char* function) const { return owner_ + "." + function; }

  Fabric& fabric() { return fabric_; }
  Courier& courier() { return courier_; }
  Limit limit() const { return Limit::silence(patience_); }
  Deadline deadline() const { return fabric_.loop().now() + patience_; }
  void set_patience(Duration patience) { patience_ = patience; }

 private:
  void exchange(const std::string& call, Span record, const Merge& merge);
  void wait_for(const std::string& call, Task<> task);
  std::vector<RollCall::Standing> ask(Duration patience);
  const std::string& named(const std::string& call) const;
  std::string words_for(const std::string& call) const;
  std::string described(const std::vector<RollCall::Standing>& standings, const std::string& call);
  std::string with_advice(std::string text) const;
  [[noreturn]] void tell_differences(const std::string& call);
  [[noreturn]] void give_up(const std::string& call, const std::string& why, int peer);
  [[noreturn]] void name_the_missing(const std::string& call, const TooLate& late);
  std::size_t ranks() const { return static_cast<std::size_t>(fabric_.size()); }

  Fabric& fabric_;
  Courier& courier_;
  Duration patience_;
  std::vector<int> names_;
  RollCall roll_call_;
  std::unique_ptr<Survivors> survivors_;  // where losses are tolerated
  std::vector<bool> present_;
  const std::string owner_;
  std::string scope_;   // the user's call of which the present ones are parts; empty: they are its
  std::string advice_;  // empty: none
  bool asked_ = false;  // one that has not answered may never answer
  std::string broken_;  // the call that did not end well, and why
  int broken_by_ = -1;
};

}  // namespace skein
