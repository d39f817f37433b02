// One other rank: the messages to and from it, cut into packets, and what is known of it.
//
// A message has left when all of it was copied into packets. What arrives goes to its receiver from
// the packet, when that is known by then. Else it is copied and waits here: no more than a window
// on a channel. Not thread-safe: only what drives the loop calls it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fabric/boxed_peer.h"
#include "fabric/mpi/mail.h"

namespace skein::mpi {

class Peer final : public BoxedPeer {
 public:
  Peer(Loop& loop, Mail& mail, Signs& signs, int rank);

  void send() override;
  bool may_send() const { return has_turns(); }

  // Whether there are messages that have not left, and still can.
  bool has_more() const { return trouble().empty() && has_messages(); }

  // A packet of this rank. False: it may wait, and should.
  bool take(const Arrived& arrived);

  void fail(const std::string& reason) override;
  void ask() override;  // unless it has yet to answer
  std::string trouble() const override;
  bool left() const { return left_; }
  bool lost() const override { return !mail_.trouble().empty(); }

 private:
  void say(Word word, Channel channel, std::uint64_t total) override;
  void give_back(std::unique_ptr<std::byte[]> bytes, std::size_t length) override {
    mail_.memory().give_back(std::move(bytes), length);
  }
  bool take_data(const Arrived& arrived);

  Mail& mail_;
  const int rank_;
  bool left_ = false;
  bool asked_ = false;
};

}  // namespace skein::mpi
