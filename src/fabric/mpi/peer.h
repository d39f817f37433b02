// One other rank: the messages to and from it, cut into packets, and what is known of it.
//
// A message has left when all of it was copied into packets. What arrives goes to its receiver from
// the packet, when that is known by then. Else it is copied and waits here: no more than kWindow
// bytes on a channel. Not thread-safe: only what drives the loop calls it.
#pragma once

#include <map>
#include <string>

#include "fabric/mpi/boxes.h"
#include "fabric/mpi/mail.h"
#include "fabric/signs.h"

namespace skein::mpi {

class Peer {
 public:
  Peer(Loop& loop, Mail& mail, Signs& signs, int rank);

  Outbox& outbox(Channel channel);
  Inbox& inbox(Channel channel);

  // Puts a message on its way; its memory must stay until it has left `box.messages`.
  void post(Outbox& box, Span data);

  // The memory of what has been posted goes away.
  void keep_messages(Outbox& box);

  // Forgets what has not left, and tells the peer.
  void close(Outbox& box);

  // From now on the first message of `box` goes to `receive`, which outlives that, until stop().
  // When a part of it has arrived by then, the box is closed: nobody can have the whole any more.
  void start(Inbox& box, const Inbox::Receive& receive);
  void stop(Inbox& box);
  void close(Inbox& box);

  // Drops the first message, which is complete; its receive has ended.
  void pop(Inbox& box);

  // Sends what may leave now.
  void send();
  bool may_send() const { return !turns_.empty(); }

  // Whether there are messages that have not left, and still can.
  bool has_more() const;

  // A packet of this rank. False: it may wait, and should.
  bool take(const Arrived& arrived);

  void fail(const std::string& reason);
  void ask();  // for a sign of progress, unless it has yet to answer

  // When the peer last showed progress, as far as this worker knows. Passed on to those who wait
  // for this worker as long as it waits for the peer.
  Time sign() const { return sign_; }
  void await(bool begins) { awaited_ += begins ? 1 : -1; }

  // Why the peer will never answer, or empty; what it said it failed of.
  std::string trouble() const;
  const std::string& failure() const { return failure_; }
  bool left() const { return left_; }
  bool lost() const { return !mail_.trouble().empty(); }

  void notify_all();

 private:
  void tell(Kind kind, Channel channel, std::uint64_t total = 0);
  void queue(Outbox& box);
  void depart(Outbox& box);
  void forget_messages(Outbox& box);
  bool take_data(const Arrived& arrived);
  void heed_answer(const Header& header);
  void settle(Inbox& box);
  void let_go(Inbox& box, std::uint64_t bytes);
  void hear();

  Loop& loop_;
  Mail& mail_;
  Signs& signs_;
  const int rank_;
  std::map<Channel, Outbox> outboxes_;
  std::map<Channel, Inbox> inboxes_;
  std::deque<Outbox*> turns_;  // who has something that may leave
  std::string failure_;        // what it said
  bool left_ = false;
  bool asked_ = false;
  int awaited_ = 0;
  Time sign_;
};

}  // namespace skein::mpi
