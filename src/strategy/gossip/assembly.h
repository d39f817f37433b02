// What workers that go at their own pace know of all: how many samples all have computed, whether
// one wants to stop, and when all have come to the same place.
//
// The lowest rank that lives keeps count and roll. Each worker tells it how far it has come, when
// that is worth a message, and hears how far all have; and each tells it when it has come to a
// flush, and it tells all when all have. While it waits it asks for signs of life, which workers
// give even while they compute. Who dies, or gives no sign for as long as the worker's patience, is
// lost; if that is the keeper, the next lowest rank takes its place.
//
// Counts are absolute: one that is told twice, or to two ranks, is counted once. A keeper that does
// not answer for a part of the patience is passed over until it does; the one after it adds what it
// is told to the last total that it has heard. So a total is never more than workers have computed.
// It is exactly that when all have come, unless a keeper was lost: then each worker's last message
// to it may be missing.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>

#include "fabric/survivors.h"
#include "strategy/gossip/tally.h"
#include "strategy/worker.h"

namespace skein {

class Assembly {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // `rank` is dead, or silent: it is to be lost to the survivors, too.
    virtual void absent(int rank) = 0;
    // A job ended by an error that is no lost peer's.
    virtual void broke(std::exception_ptr error) = 0;
  };

  // What all who came together agree on.
  struct Gathering {
    bool news = false;         // one of them brings something that the others do not have
    bool whole = false;        // none of them knows of a worker that is lost
    std::int64_t samples = 0;  // that all have computed
    double figure = 0;         // the mean of what each of them brought
  };

  // `survivors` says who lives. All outlive this; `channel` is used by nothing else.
  Assembly(Worker& worker, Channel channel, const Survivors& survivors, Tally& tally, Host& host);
  ~Assembly();

  // Begins to listen.
  void start();

  // The tally has changed. With `all` the keeper is told even of what is hardly worth a message.
  void count(bool all);

  // This worker has come, once more; `news` says whether it brings anything that the others do not
  // have. Ends when all who live have come as often. One that hears from nobody ends alone.
  Task<Gathering> come(bool news, double figure = 0);

  // That rank is lost.
  void lose(int rank);

 private:
  struct Line;  // to one other worker
  struct Message;

  // What workers tell each other of a gathering.
  struct Roll {
    std::int64_t number = 0;
    Gathering gathering;
  };

  int keeper() const;
  bool keeps() const { return keeper() == worker_.rank(); }
  int counter() const;
  void turn_to(int counter);
  void add_up();
  void tell(bool all);
  std::int64_t worth_a_message() const;
  Line& open(int rank);
  void open_lines();
  void open_all();
  Task<> listen(Line& line);
  Task<> speak(Line& line);
  Message message_to(const Line& line) const;
  void heard(Line& line);
  void say(Line& line, bool asks);
  void say_to_all(bool asks);
  Task<> keep();
  Task<> finish_speaking();
  Task<> wait_for(Line& keeper);
  bool all_here() const;
  void lose_the_silent(Time since);

  Worker& worker_;
  Channel channel_;
  const Survivors& survivors_;
  Tally& tally_;
  Host& host_;
  Signal changed_;
  std::map<int, std::unique_ptr<Line>> lines_;  // by rank, where one was needed
  bool started_ = false;
  Roll here_;      // how often this worker has come
  Roll together_;  // how often all have, as far as is known here
  int silent_keepers_ = 0;

  int counter_ = 0;                   // whom this worker tells how far it has come
  std::int64_t told_ = 0;             // samples that it has told anybody of
  bool told_stop_ = false;            // and that the run is to end
  std::optional<std::int64_t> base_;  // the total that this worker adds to; none: it never did
  std::int64_t base_own_ = 0;         // of its own samples, those that are in it
  std::int64_t counted_ = 0;          // samples of others that are not
  bool told_all_ = false;             // that the run is over
};

}  // namespace skein
