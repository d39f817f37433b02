// Loads what will be wanted soon, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace skein {

// The thread sleeps when there is nothing to load. request() and take() are for one thread at a
// time. The destructor waits for a load in progress.
class LoadAhead {
 public:
  using Indices = std::vector<std::uint32_t>;
  using Load = std::function<std::shared_ptr<void>(std::span<const std::uint32_t> indices)>;

  // `at_once`: `load` may be called by several threads at once.
  LoadAhead(Load load, bool at_once);

  // These will be wanted next, in this order. Takes the place of earlier requests; what has been
  // loaded of them, or is being loaded, is kept where it is among these.
  void request(const std::vector<Indices>& upcoming);

  // What `load` makes of these samples: as requested if that was begun, waiting for it if need be;
  // otherwise loaded here and now. What the load threw is thrown here.
  std::shared_ptr<void> take(std::span<const std::uint32_t> indices);

 private:
  struct Job {
    Indices indices;
    std::shared_ptr<void> value;
    std::exception_ptr error;
    bool started = false;
    bool done = false;
  };

  void run(const std::stop_token& stop);
  std::shared_ptr<Job> first_unstarted() const;
  std::shared_ptr<void> load(std::span<const std::uint32_t> indices);

  Load load_;
  bool at_once_;
  std::mutex loading_;  // held while `load_` runs, where only one may call it
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<Job>> jobs_;  // requested and not taken
  std::jthread thread_;                    // last: it uses all of the above
};

}  // namespace skein
