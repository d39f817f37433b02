// One direction of a connection between two virtual workers, on one channel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/arena.h"
#include "core/loop.h"
#include "sim/traffic.h"

namespace skein::sim {

class Cluster;

// Messages pass one after the other: each waits for its turn on the wire, is sent at the rate that
// Traffic gives it, and arrives a latency later, in order.
class Stream final : public Traffic::Listener, public Engine::Handler {
 public:
  Stream(Cluster& cluster, int from, int to, int channel);

  int from() const { return from_; }
  int to() const { return to_; }
  int channel() const { return channel_; }

  // The sender's memory is read when its last byte leaves, as late as the sender must expect.
  // Numbers count from 0.
  void post(Span data);
  std::uint64_t posted() const { return posted_; }
  std::uint64_t transmitted_count() const { return transmitted_; }

  bool arrived(std::uint64_t number) const { return number < arrived_; }

  struct Message {
    std::size_t bytes = 0;
    Span source;                   // until it has left
    std::unique_ptr<Memory> copy;  // then; null where the sender's memory was absent
  };
  // The next one, which has arrived.
  Message take();

  // The sender takes back what has not left; the receiver takes nothing more. The other side learns
  // of it a latency later, behind what is on its way already.
  void withdraw();
  void refuse();
  bool withdrawn() const { return withdrawal_ == Word::heard && arrived_ == posted_; }
  bool refused() const { return refusal_ == Word::heard; }

  // Whether anything that was sent has yet to arrive, and whether it moves.
  bool under_way() const { return arrived_ < posted_; }
  bool moves() const { return arrived_ < transmitted_ || (transmitted_ < posted_ && !stalled_); }

  // The network between the two ends was cut or healed.
  void reroute();
  // The sender's process is gone, and with it what had not left its host.
  void drop_unsent();

  Signal& arrival() { return arrival_; }      // of the receiver's loop
  Signal& departure() { return departure_; }  // of the sender's loop

  void transmitted() override;
  void happen(std::uint64_t token) override;

 private:
  enum class Word : std::uint8_t { none, said, under_way, heard };
  enum Token : std::uint64_t { kMessage, kWithdrawal, kRefusal };

  Message& message(std::uint64_t number) { return messages_[first_ + (number - taken_)]; }
  void start_next();
  void pass_on_words();
  std::uint64_t pair_key() const {
    return static_cast<std::uint64_t>(from_) << 40 | static_cast<std::uint64_t>(to_) << 16 |
           static_cast<std::uint64_t>(channel_);
  }

  Cluster& cluster_;
  int from_, to_, channel_;
  Traffic::FlowId flow_;
  // From the one that is to be taken next to the last that was posted: some have arrived, some fly,
  // the others wait, of which the first is on the wire. A cluster has many streams, and most are
  // empty: they have no memory then.
  std::vector<Message> messages_;
  std::size_t first_ = 0;  // those before have been taken
  std::uint64_t posted_ = 0, transmitted_ = 0, arrived_ = 0, taken_ = 0;
  Word withdrawal_ = Word::none, refusal_ = Word::none;
  double bytes_left_ = 0;  // of the message on the wire, while it is stalled
  bool stalled_ = false;
  Time last_arrival_{};
  Signal arrival_, departure_;
};

}  // namespace skein::sim
