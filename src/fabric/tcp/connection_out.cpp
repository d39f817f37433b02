// The frames that leave.
#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/tcp/connection.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

// Far more than a peer that reads lets gather.
constexpr std::size_t kMostNews = 1 << 20;

std::unique_ptr<std::byte[]> copy_of(const std::byte* data, std::size_t bytes) {
  auto out = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(out.get(), data, bytes);
  return out;
}

// The part of the front message that goes next, and what it costs.
std::size_t next_part(const Outbox& box) {
  return std::min<std::size_t>(box.messages.front().left, kMostOfAFrame);
}
std::uint64_t cost(const Outbox& box) {
  const Outbox::Message& message = box.messages.front();
  return next_part(box) + (message.left == message.total ? kMessageCost : 0);
}

}  // namespace

Outbox& Connection::outbox(Channel channel) {
  return outboxes_.try_emplace(channel, loop_, channel).first->second;
}

void Connection::post(Outbox& box, Span data) {
  const auto* bytes = static_cast<const std::byte*>(data.data);
  box.messages.push_back({bytes, data.bytes(), data.bytes(), box.next++, nullptr});
  queue(box);
  send();
}

void Connection::queue(Outbox& box) {
  if (box.in_turn || box.messages.empty() || box.spent - box.returned + cost(box) > kWindow) return;
  box.in_turn = true;
  turns_.push_back(&box);
}

void Connection::tell(const Frame& frame) {
  const FrameBytes bytes = encode(frame);
  news_.insert(news_.end(), bytes.begin(), bytes.end());
  if (news_.size() > kMostNews) lose("it has stopped reading");
}

bool Connection::next_departure() {
  if (departing_) return true;
  if (!news_.empty()) {
    departure_ = {};
    departure_.small.swap(news_);
    return departing_ = true;
  }
  if (turns_.empty()) return false;
  Outbox& box = *turns_.front();
  turns_.pop_front();
  box.in_turn = false;
  if (box.messages.empty()) return next_departure();
  Outbox::Message& message = box.messages.front();
  const std::size_t length = next_part(box);
  box.spent += cost(box);
  const FrameBytes header =
      encode({Kind::data, static_cast<std::uint32_t>(box.channel), message.number,
              static_cast<std::uint32_t>(length), message.total, message.total - message.left});
  departure_ = {{header.begin(), header.end()}, message.data, length, 0, &box, nullptr};
  message.data += length;
  message.left -= length;
  return departing_ = true;
}

void Connection::departed() {
  departing_ = false;
  if (!departure_.box) return;
  Outbox& box = *departure_.box;
  if (box.messages.front().left == 0) {
    box.messages.pop_front();
    box.moved.notify_all();
  }
  queue(box);
  hear();
}

void Connection::send() {
  if (lost() || mute_) return;
  try {
    while (next_departure()) {
      Departure& out = departure_;
      const std::size_t small = std::min(out.at, out.small.size());
      const std::size_t body = out.at - small;
      const std::array<iovec, 2> parts{
          iovec{out.small.data() + small, out.small.size() - small},
          iovec{const_cast<std::byte*>(out.body) + body, out.length - body}};
      out.at += stream_->write(parts);
      if (out.at < out.small.size() + out.length) break;
      departed();
    }
    stream_->flush();
  } catch (const IoError&) {
    // The peer may have sent its last words before it went: reading ends when they have been read.
    mute_ = true;
    stream_->again();
  }
}

void Connection::keep_messages(Outbox& box) {
  if (departing_ && departure_.box == &box && !departure_.own) {
    departure_.own = copy_of(departure_.body, departure_.length);
    departure_.body = departure_.own.get();
  }
  for (Outbox::Message& message : box.messages) {
    if (message.own) continue;
    message.own = copy_of(message.data, message.left);
    message.data = message.own.get();
  }
}

// The frame that has been begun must be ended: the peer expects its bytes.
void Connection::forget_messages(Outbox& box) {
  if (departing_ && departure_.box == &box) {
    departure_.own = copy_of(departure_.body, departure_.length);
    departure_.body = departure_.own.get();
    departure_.box = nullptr;
  }
  box.dropped |= !box.messages.empty();
  box.messages.clear();
  box.moved.notify_all();
}

void Connection::close(Outbox& box) {
  if (box.closed) return;
  box.closed = true;
  forget_messages(box);
  if (!box.refused) tell({Kind::withdrawn, static_cast<std::uint32_t>(box.channel), 0, 0, 0, 0});
  send();
}

void Connection::fail(const std::string& reason) {
  const std::string text = reason.substr(0, kMostOfAText);
  tell({Kind::failed, 0, 0, static_cast<std::uint32_t>(text.size()), 0, 0});
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  news_.insert(news_.end(), bytes, bytes + text.size());
  send();
}

void Connection::ask() {
  const auto now = static_cast<std::uint64_t>(loop_.now().time_since_epoch().count());
  tell({Kind::ask, 0, 0, 0, 0, now});
  send();
}

void Connection::beat() {
  if (lost()) return;
  receive();  // what has come is heard before it is missed
  pulse_.pass(loop_.now());
  if (pulse_.silent())
    return lose(fmt::format("nothing has come from it for {:.1f} s, not even a heartbeat",
                            seconds(pulse_.silence())));
  if (news_.empty()) tell({Kind::beat, 0, 0, 0, 0, 0});  // others are signs of life as well
  send();
}

void Connection::leave() {
  tell({Kind::left, 0, 0, 0, 0, 0});
  send();
}

// A socket that is closed with something unread resets the connection, and what is still on its way
// to the peer is lost: so that is read, until the peer's system has all.
bool Connection::gone() {
  send();
  receive();
  if (lost() || mute_) return true;
  const bool pending = departing_ || !news_.empty() ||
                       std::any_of(outboxes_.begin(), outboxes_.end(),
                                   [](const auto& each) { return !each.second.messages.empty(); });
  if (pending) return false;
  try {
    if (!stream_->flush()) return false;
  } catch (const IoError&) {
    return true;
  }
  int unsent = 0;
  return ::ioctl(stream_->socket(), SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

}  // namespace skein::tcp
