// Averagings under way: two workers send each other a snapshot of their models while both compute
// on.
#pragma once

#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "strategy/gossip/expectation.h"
#include "strategy/gossip/live_model.h"
#include "strategy/worker.h"

namespace skein {

// Models pass in both directions at once, in blocks, and each block is applied as it arrives. With
// the difference of the two snapshots, which has the same bits on both sides, what one gains the
// other loses, whatever either has done since.
class Exchanges {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // `peer` did not keep up with an exchange: it died, or its time is over.
    virtual void failed(int peer) = 0;
    // One ended by an error that is no lost peer's.
    virtual void broke(std::exception_ptr error) = 0;
  };

  struct Counts {
    std::int64_t initiated = 0, accepted = 0;  // that have ended well
    std::int64_t suspended = 0;                // that took longer than the others
  };

  // With `states` the optimizer's state is averaged too. All outlive this; `changed` is notified
  // when an exchange ends.
  Exchanges(Worker& worker, Channel channel, LiveModel& model, bool states, Signal& changed,
            Host& host);
  ~Exchanges();

  // `peer` begins it too. There is at most one with each peer.
  void begin(int peer, bool own_proposal);

  // Whether one goes on that is not late. One that is late goes on by itself, if it can.
  bool engaged();
  bool open() const;  // any, late or not
  bool open_with(int peer) const;
  Time next_suspension() const;  // kNever: there is none to come

  // Nothing that was begun so far changes the model any more. The other sides get what they wait
  // for.
  void detach_all();

  const Counts& counts() const { return counts_; }
  Duration mean() const { return durations_.mean(); }
  std::vector<double> latencies_ms() const { return latencies_ms_; }  // of the latest ones

 private:
  struct Snapshot;
  struct Exchange;
  struct Part;  // what is exchanged: the model, and perhaps the optimizer's state

  std::vector<Part> parts() const;
  Snapshot& take_snapshot();
  Task<> run(Exchange& exchange);
  Task<> send(Exchange& exchange);
  Task<> receive(Exchange& exchange);
  Task<> wait_until_sent(Exchange& exchange);
  void apply(const Exchange& exchange, std::size_t part, Range range, Span theirs);
  void ended(Exchange& exchange);
  void sweep();

  Worker& worker_;
  Channel channel_;
  LiveModel& model_;
  bool states_;
  Signal& changed_;
  Host& host_;
  std::vector<std::unique_ptr<Snapshot>> snapshots_;
  std::list<std::unique_ptr<Exchange>> exchanges_;
  Expectation durations_;
  Counts counts_;
  std::vector<double> latencies_ms_;
  std::size_t next_latency_ = 0;
};

}  // namespace skein
