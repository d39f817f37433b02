// One other rank, whose messages leave from and arrive in boxes: how far a sender may be ahead, how
// what has come goes where it belongs, how either side gives up, and what is known of the peer's
// progress. How a part of a message travels is each fabric's own.
//
// Not thread-safe: only what drives the loop calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "core/loop.h"
#include "core/span.h"
#include "fabric/boxes.h"
#include "fabric/signs.h"

namespace skein {

class BoxedPeer {
 public:
  using Outbox = boxed::Outbox;
  using Inbox = boxed::Inbox;

  // A part of a message has at most so many bytes.
  BoxedPeer(Loop& loop, Signs& signs, std::size_t most_of_a_part);
  BoxedPeer(const BoxedPeer&) = delete;
  BoxedPeer& operator=(const BoxedPeer&) = delete;
  virtual ~BoxedPeer() = default;

  Outbox& outbox(Channel channel);
  Inbox& inbox(Channel channel);

  // Puts a message on its way; its memory must stay until it has left `box.messages`.
  void post(Outbox& box, Span data);

  // The memory of what has been posted goes away: copies what may still be needed of it.
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

  // Tells the peer why this rank is about to end.
  virtual void fail(const std::string& reason) = 0;

  // Asks for a sign of progress.
  virtual void ask() = 0;

  // When the peer last showed progress, as far as this worker knows. Passed on to those who wait
  // for this worker as long as it waits for the peer.
  Time sign() const { return sign_; }
  void await(bool begins) { awaited_ += begins ? 1 : -1; }

  // Why the peer will never answer, or empty; what it said it failed of.
  virtual std::string trouble() const = 0;
  const std::string& failure() const { return failure_; }

  // Nothing can be sent to it any more.
  virtual bool lost() const = 0;

 protected:
  // What the two say of a channel: the receiver has let go of `total` bytes so far; it takes
  // nothing more; the sender sends nothing beyond `total` bytes.
  enum class Word : std::uint8_t { taken, refused, withdrawn };
  virtual void say(Word word, Channel channel, std::uint64_t total) = 0;

  // Sends what may leave now.
  virtual void send() = 0;

  // Of what has left and may have to leave again: copies it, since its memory goes away.
  virtual void keep_sent(Outbox&) {}

  // A receive has stopped, or the box takes nothing more: what comes now goes nowhere.
  virtual void discard(Inbox&) {}

  // The memory of a piece, which was taken for so many bytes.
  virtual void give_back(std::unique_ptr<std::byte[]> bytes, std::size_t length) = 0;

  // What goes out: the next box whose turn it is, or null, and its next message, of which the next
  // part has next_part() bytes.
  bool has_turns() const { return !turns_.empty(); }
  Outbox* next_turn();
  static Outbox::Message& next_message(Outbox& box) { return box.messages[box.departed]; }
  std::size_t next_part(Outbox& box) const;
  void part_has_left(Outbox& box);
  static void release(Outbox& box);
  void forget_messages(Outbox& box);
  bool has_messages() const;

  // What comes in: the first message's pieces go where they belong, and memory is free again.
  void settle(Inbox& box);
  void let_go(Inbox& box, std::uint64_t bytes);

  // What the peer says.
  void heed_taken(Outbox& box, std::uint64_t total);
  void heed_refused(Outbox& box);
  static void heed_withdrawn(Inbox& box, std::uint64_t total);
  void heed_failed(std::string reason);

  // A question for a sign was asked at a time; the answer is the sign's age.
  std::uint64_t now_as_count() const;
  std::uint64_t age_of_last_sign() const;
  void heed_answer(std::uint64_t asked_at, std::uint64_t age);

  // It has done something, and so has this worker.
  void hear();
  void notify_all();

  Loop& loop() const { return loop_; }
  Signs& signs() const { return signs_; }
  std::map<Channel, Outbox>& outboxes() { return outboxes_; }

 private:
  std::uint64_t cost(Outbox& box) const;
  void queue(Outbox& box);

  Loop& loop_;
  Signs& signs_;
  const std::size_t most_of_a_part_;
  std::map<Channel, Outbox> outboxes_;
  std::map<Channel, Inbox> inboxes_;
  std::deque<Outbox*> turns_;  // who has something that may leave
  std::string failure_;
  Time sign_;
  int awaited_ = 0;
};

}  // namespace skein
