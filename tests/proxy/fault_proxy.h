// Stands between two workers that talk over TCP and does to their connections what networks do.
//
// Listens at a port of the loopback interface and passes on, both ways, what arrives there to its
// target and back. A thread of its own does so. All calls are thread-safe and have taken effect
// when they return.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"

namespace skein {

class FaultProxy {
 public:
  enum Way : std::uint8_t { to_target, from_target };

  explicit FaultProxy(const std::string& target);  // HOST:PORT
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;
  ~FaultProxy();

  const std::string& address() const { return address_; }

  // From now on every byte arrives so much later.
  void delay(Duration by);

  // From now on a byte passes every so often, on each way; zero: all that come.
  void trickle(Duration every);

  // From now on so many bytes pass in a second on each way, of each connection or of all together.
  enum class Of : std::uint8_t { each, all };
  void limit(double bytes_per_second, Of of);

  // Nothing moves until it is called again with false; what is sent meanwhile is kept.
  void stall(bool stalled);

  // New connections are reset at once until it is called again with false.
  void refuse(bool refused);

  // Resets all connections, with what is on its way in them; or one of them.
  void cut();
  void cut_one();

  // Every connection, present and new, is reset after it has passed so many bytes on one of the
  // ways; 0: none is.
  void cut_every(std::uint64_t bytes);

  // Ends one way of all connections: whoever reads there finds that the other has closed.
  void half_close(Way way);

  // Turns over a bit of the byte that passes after so many others have on that way, once.
  void corrupt_after(Way way, std::uint64_t bytes);

  int connections() const { return accepted_; }  // so far
  int streams() const { return reached_; }       // of them that reached the target

  // Connections that are whole and have brought messages, not only the words with which they begin.
  int carrying();
  std::uint64_t passed(Way way) const { return passed_[way]; }

  // What has passed on the first connection on that way, up to 64 KiB.
  std::vector<char> recorded(Way way);

 private:
  struct Piece {
    Time due;
    std::vector<char> bytes;
    std::size_t at = 0;
  };
  struct Allowance {
    double bytes = 0;
    Time since{};
  };
  struct Pipe {
    int from = -1, to = -1;
    std::deque<Piece> pieces;
    std::size_t held = 0;
    std::uint64_t passed = 0;
    Allowance allowance;
    bool ended = false, closed = false;  // nothing more comes; whoever reads has been told
  };
  struct Pair {
    FileDescriptor client, server;
    std::array<Pipe, 2> pipes;  // by way
    bool broken = false;
  };

  void run();
  void on_thread(const std::function<void()>& action);
  void accept();
  void read(Pair& pair, Way way);
  void write(Pair& pair, Way way);
  void pass(Pair& pair, Way way, char* bytes, std::size_t count);
  std::size_t allowed(Pipe& pipe, Way way, Time now);
  static void reset(Pair& pair);

  const std::string target_;
  std::string address_;
  FileDescriptor listener_, bell_;
  std::list<Pair> pairs_;
  Duration delay_{0}, trickle_{0};
  double limit_ = 0;
  Of limited_ = Of::each;
  std::array<Allowance, 2> allowances_;  // of all connections
  bool stalled_ = false, refused_ = false;
  std::uint64_t cut_every_ = 0;
  std::array<std::uint64_t, 2> corrupt_in_{~std::uint64_t{0}, ~std::uint64_t{0}};
  const Pair* recording_ = nullptr;  // the first that reached its target
  std::array<std::vector<char>, 2> recorded_;
  std::array<Time, 2> next_byte_{};
  std::array<std::atomic<std::uint64_t>, 2> passed_{};
  std::atomic<int> accepted_{0}, reached_{0};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // held by the thread but for when it sleeps
  std::thread thread_;
};

}  // namespace skein
