// Workers that go at their own pace come together, however long the first has to wait for the last.
//
// The lowest rank that lives keeps the roll: each worker tells it when it has come, and it tells
// all when all have. While it waits it asks for signs of life, which workers give even while they
// compute. Who dies, or gives no sign for as long as the worker's patience, is lost; if that is
// the keeper, the next lowest rank takes its place.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "fabric/survivors.h"
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

  // `survivors` says who lives. All outlive this; `channel` is used by nothing else.
  Assembly(Worker& worker, Channel channel, const Survivors& survivors, Host& host);
  ~Assembly();

  // Begins to listen.
  void start();

  // This worker has come, once more; `news` says whether it brings anything that the others do not
  // have. Ends when all who live have come as often, and returns whether any of them brings news.
  // One that hears from nobody ends alone.
  Task<bool> come(bool news);

  // That rank is lost.
  void lose(int rank);

 private:
  struct Line;  // to one other worker

  // What workers tell each other.
  struct Roll {
    std::int64_t number = 0;
    bool news = false;
  };

  int keeper() const;
  bool keeps() const { return keeper() == worker_.rank(); }
  void open(int rank);
  void open_lines();
  Task<> listen(Line& line);
  Task<> speak(Line& line);
  void heard(Line& line);
  void say(Line& line, bool asks);
  Task<> keep();
  Task<> finish_speaking();
  Task<> wait_for(Line& keeper);
  bool all_here() const;
  void lose_the_silent(Time since);

  Worker& worker_;
  Channel channel_;
  const Survivors& survivors_;
  Host& host_;
  Signal changed_;
  std::vector<std::unique_ptr<Line>> lines_;  // by rank; null where none was needed
  bool started_ = false;
  Roll here_;      // how often this worker has come
  Roll together_;  // how often all have, as far as is known here
  int silent_keepers_ = 0;
};

}  // namespace skein
