// Who averages with whom next, found by neighbours among themselves.
//
// A worker proposes to a neighbour, which accepts or refuses at once; a proposal that meets one the
// other way counts as accepted, the lower rank's. So every proposal has exactly one answer, and
// nothing is ever taken back: one that comes late is as good as any. A neighbour that does not
// answer in time is not asked again until it does.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/rng.h"
#include "strategy/gossip/expectation.h"
#include "strategy/gossip/tally.h"
#include "strategy/worker.h"

namespace skein {

class Pairing {
 public:
  // The worker that is to be paired.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether an exchange with `peer` may begin now.
    virtual bool is_free_for(int peer) const = 0;
    // Whether an exchange with `peer` goes on that is late.
    virtual bool is_stuck_with(int peer) const = 0;
    // An exchange has been agreed on: `peer` begins it too. Even if this worker is not free.
    virtual void agreed(int peer, bool own_proposal) = 0;
    virtual void lost(int peer) = 0;
    // A job ended by an error that is no lost peer's.
    virtual void broke(std::exception_ptr error) = 0;
  };

  struct Counts {
    std::int64_t refused = 0;     // proposals of this worker
    std::int64_t unanswered = 0;  // not in time
  };

  // `changed` is notified of whatever may let somebody go on. All outlive this.
  Pairing(Worker& worker, Channel channel, std::span<const int> neighbours, Tally& tally,
          Signal& changed, Host& host);
  ~Pairing();

  // Begins to listen.
  void start();

  // Proposes to a neighbour drawn at random from those that may be asked, and waits for its answer
  // as long as that is worth it. False: there is nobody to ask now.
  Task<bool> propose();
  bool proposing() const { return asked_ != nullptr; }

  // Whether an answer is owed to this worker, however late it is.
  bool awaits_answers() const;

  // How long to leave it when nobody can be asked, where an exchange takes about so long.
  Duration pause(Duration exchange);

  // Tells all neighbours what this worker knows, and whether it takes part in averagings.
  void announce(bool takes_part);

  // Whether there is a neighbour that lives, answers and takes part.
  bool has_company() const;

  void lose(int peer);

  // `rank` is a neighbour from now on, if it was none. Requires start().
  void add(int rank);
  const Counts& counts() const { return counts_; }

  // Where its random numbers stand.
  const Rng& rng() const { return rng_; }
  void go_on_with(const Rng& rng) { rng_ = rng; }

 private:
  enum class Kind : std::uint8_t { propose, accept, refuse, news };
  struct Neighbour;
  struct Message;

  void start(Neighbour& neighbour);
  Task<> listen(Neighbour& from);
  Task<> speak(Neighbour& to);
  void heard(Neighbour& from);
  void proposed(Neighbour& from, std::int64_t number);
  void answered(Neighbour& from, Kind kind, std::int64_t number);
  void resolve(Neighbour& from);
  void say(Neighbour& to, Kind kind, std::int64_t number);
  void lose(Neighbour& neighbour);
  Neighbour* pick();
  Neighbour* find(int rank) const;

  Worker& worker_;
  Channel channel_;
  Tally& tally_;
  Signal& changed_;
  Host& host_;
  Rng rng_;
  Expectation answers_;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  Neighbour* asked_ = nullptr;  // whose answer is waited for
  bool takes_part_ = false;
  std::int64_t number_ = 0;
  Counts counts_;
};

}  // namespace skein
