// One end of a connection between workers, fed byte by byte: what a worker sends arrives, however
// it is cut and whenever it is wanted; what no worker sends ends the connection and nothing else.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "core/rng.h"
#include "fabric/tcp/connection.h"
#include "fabric/tcp/errors.h"
#include "launch/meeting_place.h"

namespace skein::tcp {
namespace {

constexpr Channel kChannel = 3;

const Tls& tls() {
  static const Tls made(derive_key("a secret of the tests"));
  return made;
}

// A connection in clear whose other end is a socket of the test.
class Rig {
 public:
  Rig() { connection.emplace(loop, new_stream(), signs_); }

  // Another stream to the same peer, which has received nothing.
  void add_lane() {
    Lane& lane = connection->lane(others_.size());
    connection->attach(lane, new_stream(), 0);
    turn();
  }

  // The peer's end of a stream, and its end.
  int socket(std::size_t lane) const { return others_[lane]->socket(); }
  void cut(std::size_t lane) {
    others_[lane].reset();
    turn();
  }

  // What has arrived at the peer on a stream.
  std::vector<std::byte> take(std::size_t lane) {
    std::vector<std::byte> out(1 << 22);
    turn();
    const ssize_t got = ::recv(socket(lane), out.data(), out.size(), MSG_DONTWAIT);
    out.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return out;
  }

  // Sends all of it at once, which must not be more than a socket holds.
  void send(std::size_t lane, std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(socket(lane), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    turn();
  }

  void turn() {
    for (int i = 0; i < 3; ++i) {
      poller_.poll();
      loop.run_ready();
    }
  }

  // Sends bytes to the connection, in pieces of random sizes.
  void send(const std::vector<std::byte>& bytes, Rng& rng) {
    for (std::size_t at = 0; at < bytes.size() && !connection->lost();) {
      const std::size_t most = std::min<std::size_t>(bytes.size() - at, 1 + rng.below(100'000));
      const ssize_t sent = ::send(socket(0), bytes.data() + at, most, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      if (rng.below(2) == 0 || sent <= 0) turn();
    }
  }

  const SteadyClock clock;
  Loop loop{clock};

 private:
  std::unique_ptr<Stream> new_stream() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    auto mine = std::make_unique<Stream>(poller_, FileDescriptor(ends[0]), tls(), Side::accepts);
    auto other = std::make_unique<Stream>(poller_, FileDescriptor(ends[1]), tls(), Side::connects);
    bool one = false, two = false;
    while (!one || !two) {
      one = one || mine->handshake();
      two = two || other->handshake();
    }
    mine->go_on_in_clear();
    other->go_on_in_clear();
    others_.push_back(std::move(other));
    return mine;
  }

  Poller poller_;
  Signs signs_{clock.now()};
  std::vector<std::unique_ptr<Stream>> others_;  // by lane

 public:
  std::optional<Connection> connection;  // uses all of them
};

void append(std::vector<std::byte>& out, Frame frame, const std::byte* body,
            std::uint64_t& sequence) {
  if (numbered(frame.kind)) frame.sequence = ++sequence;
  const FrameBytes header = encode(frame);
  out.insert(out.end(), header.begin(), header.end());
  if (frame.length > 0) out.insert(out.end(), body, body + frame.length);
}

// The frames of a message, as a worker cuts it.
std::vector<std::byte> frames_of(std::span<const std::byte> message, std::uint32_t number,
                                 std::uint64_t& sequence) {
  std::vector<std::byte> out;
  std::uint64_t offset = 0;
  do {
    const std::size_t length = std::min<std::size_t>(message.size() - offset, kMostOfAFrame);
    append(
        out,
        {Kind::data, kChannel, number, static_cast<std::uint32_t>(length), message.size(), offset},
        message.data() + offset, sequence);
    offset += length;
  } while (offset < message.size());
  return out;
}

TEST(TcpConnection, MessagesArriveHoweverTheyAreCutAndWheneverTheyAreWanted) {
  Rng rng(1);
  for (int round = 0; round < 60; ++round) {
    Rig rig;
    Inbox& box = rig.connection->inbox(kChannel);
    const bool early = rng.below(2) == 0;
    std::uint64_t sequence = 0;
    for (std::uint32_t number = 0; number < 4; ++number) {
      std::vector<float> sent(rng.below(200'000)), got(sent.size(), 1);
      for (float& x : sent) x = static_cast<float>(rng.below(1000));
      const auto bytes = std::as_bytes(std::span(sent));
      const Combine combine = rng.below(2) == 0 ? Combine::add : Combine::copy;
      const Inbox::Receive receive{{got.data(), got.size()}, combine};
      const auto frames = frames_of(bytes, number, sequence);
      if (early) rig.connection->start(box, receive);
      const std::size_t before = rng.below(frames.size());
      rig.send({frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(before)}, rng);
      if (!early) rig.connection->start(box, receive);
      rig.send({frames.begin() + static_cast<std::ptrdiff_t>(before), frames.end()}, rng);
      rig.turn();
      ASSERT_FALSE(rig.connection->lost()) << rig.connection->trouble();
      ASSERT_TRUE(!box.arrivals.empty() && box.arrivals.front().complete());
      rig.connection->stop(box);
      rig.connection->pop(box);
      for (std::size_t i = 0; i < sent.size(); ++i)
        ASSERT_EQ(got[i], combine == Combine::add ? sent[i] + 1 : sent[i]) << i;
    }
  }
}

// Several streams bring frames in any order, and one that takes the place of another brings some
// twice.
TEST(TcpConnection, MessagesArriveInWhateverOrderTheirFramesComeAndHoweverOften) {
  Rng rng(7);
  for (int round = 0; round < 60; ++round) {
    Rig rig;
    Inbox& box = rig.connection->inbox(kChannel);
    std::vector<std::vector<std::byte>> frames;
    std::vector<std::vector<float>> sent(4);
    std::uint64_t sequence = 0;
    for (std::uint32_t number = 0; number < 4; ++number) {
      sent[number].resize(rng.below(100'000));
      for (float& x : sent[number]) x = static_cast<float>(rng.below(1000));
      const auto all = frames_of(std::as_bytes(std::span(sent[number])), number, sequence);
      for (std::size_t at = 0; at < all.size(); at += kFrameBytes + kMostOfAFrame)
        frames.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(std::min(
                                              all.size(), at + kFrameBytes + kMostOfAFrame)));
    }
    for (std::size_t i = rng.below(8); i > 0; --i)
      frames.push_back(frames[rng.below(frames.size())]);
    for (std::size_t i = frames.size(); i > 1; --i) std::swap(frames[i - 1], frames[rng.below(i)]);
    std::size_t next = 0;
    for (const auto& message : sent) {
      std::vector<float> got(message.size(), 1);
      const Inbox::Receive receive{{got.data(), got.size()}, Combine::add};
      while (next < frames.size() && rng.below(4) > 0) rig.send(frames[next++], rng);
      rig.connection->start(box, receive);
      const auto there = [&] { return !box.arrivals.empty() && box.arrivals.front().complete(); };
      while (next < frames.size() && !there()) {
        rig.send(frames[next++], rng);
        rig.turn();
      }
      for (int i = 0; i < 20 && !there(); ++i) rig.turn();
      ASSERT_TRUE(there()) << rig.connection->trouble();
      rig.connection->stop(box);
      rig.connection->pop(box);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], message[i] + 1) << i;
    }
    while (next < frames.size()) rig.send(frames[next++], rng);
    for (int i = 0; i < 20; ++i) rig.turn();
    EXPECT_EQ(rig.connection->trouble(), "");
    EXPECT_EQ(rig.connection->received(), sequence);
  }
}

// The peer has stopped to believe in the first stream and sends what it carried on the second:
// whichever is whole first counts, once, wherever the other one breaks off.
TEST(TcpConnection, TakesAPartOnceThatTwoStreamsBring) {
  std::vector<float> message(9000);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<float>(i % 1000);
  std::uint64_t sequence = 0;
  const auto frames = frames_of(std::as_bytes(std::span(message)), 0, sequence);
  const std::span<const std::byte> all(frames);
  ASSERT_EQ(sequence, 1u) << "one frame";
  const std::size_t some = 1000, more = 20'000;
  enum class End : std::uint8_t { second_first, first_first, first_breaks, second_breaks };
  for (const End end : {End::second_first, End::first_first, End::first_breaks, End::second_breaks})
    for (const bool wanted : {true, false}) {
      Rig rig;
      rig.connection->on_broken = [](std::size_t) {};
      rig.add_lane();
      Inbox& box = rig.connection->inbox(kChannel);
      std::vector<float> got(message.size(), 1);
      const Inbox::Receive receive{{got.data(), got.size()}, Combine::add};
      if (wanted) rig.connection->start(box, receive);
      for (int i = 0; i < 20; ++i) rig.turn();
      rig.send(0, all.first(some));
      rig.send(1, all.first(more));
      const std::size_t last = end == End::second_first || end == End::first_breaks ? 1 : 0;
      if (end == End::first_breaks) rig.cut(0);
      if (end == End::second_breaks) rig.cut(1);
      rig.send(last, all.subspan(last == 1 ? more : some));
      if (end == End::second_first) rig.send(0, all.subspan(some));
      if (end == End::first_first) rig.send(1, all.subspan(more));
      for (int i = 0; i < 20; ++i) rig.turn();
      if (!wanted) rig.connection->start(box, receive);
      ASSERT_EQ(rig.connection->trouble(), "") << static_cast<int>(end);
      ASSERT_TRUE(!box.arrivals.empty() && box.arrivals.front().complete());
      rig.connection->stop(box);
      rig.connection->pop(box);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], message[i] + 1) << i;
      EXPECT_EQ(rig.connection->received(), 1u);
      EXPECT_EQ(box.coming, 0u);
    }
}

// Nobody replaces the first stream, and nothing waits for that.
TEST(TcpConnection, SendsAgainOnAnotherStreamWhatALostOneCarried) {
  Rig rig;
  std::size_t broken = 9;
  rig.connection->on_broken = [&](std::size_t lane) { broken = lane; };
  rig.add_lane();
  const std::vector<std::byte> greeting = rig.take(1);  // an acknowledgement
  Outbox& box = rig.connection->outbox(kChannel);
  const std::vector<float> message(100, 2.5F);
  std::vector<float> out = message;
  rig.connection->post(box, {out.data(), out.size()});
  rig.connection->post(box, {out.data(), out.size()});
  rig.take(0);  // it arrives, and is not acknowledged
  EXPECT_TRUE(rig.take(1).empty());
  rig.cut(0);
  EXPECT_EQ(broken, 0u);
  EXPECT_EQ(rig.connection->trouble(), "");
  const std::vector<std::byte> again = rig.take(1);
  std::vector<std::uint32_t> numbers;
  for (std::size_t at = 0; at + kFrameBytes <= again.size();) {
    FrameBytes header;
    std::copy_n(again.begin() + static_cast<std::ptrdiff_t>(at), kFrameBytes, header.begin());
    const Frame frame = decode_frame(header);
    at += kFrameBytes;
    if (frame.kind == Kind::data) {
      numbers.push_back(frame.number);
      EXPECT_EQ(std::memcmp(again.data() + at, message.data(), frame.length), 0);
    }
    at += frame.length;
  }
  EXPECT_EQ(numbers, (std::vector<std::uint32_t>{0, 1}));
}

// Memory is the receiver's again as soon as it has stopped.
TEST(TcpConnection, NothingIsWrittenWhereAReceiveWasStopped) {
  Rng rng(2);
  for (int round = 0; round < 30; ++round) {
    Rig rig;
    Inbox& box = rig.connection->inbox(kChannel);
    std::vector<float> sent(100'000, 7), got(sent.size(), 1);
    const Inbox::Receive receive{{got.data(), got.size()},
                                 round % 2 == 0 ? Combine::copy : Combine::add};
    std::uint64_t sequence = 0;
    const auto frames = frames_of(std::as_bytes(std::span(sent)), 0, sequence);
    const auto middle = frames.begin() + static_cast<std::ptrdiff_t>(rng.below(frames.size()));
    rig.connection->start(box, receive);
    rig.send({frames.begin(), middle}, rng);
    rig.connection->stop(box);
    rig.connection->close(box);
    std::fill(got.begin(), got.end(), -1.0F);
    rig.send({middle, frames.end()}, rng);
    rig.turn();
    EXPECT_FALSE(rig.connection->lost()) << rig.connection->trouble();
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float x) { return x == -1; }));
  }
}

TEST(TcpConnection, ASenderThatGoesTooFarAheadIsLost) {
  Rng rng(3);
  Rig rig;
  const std::vector<std::byte> message(2 * kWindow);
  std::uint64_t sequence = 0;
  rig.send(frames_of(message, 0, sequence), rng);
  EXPECT_TRUE(rig.connection->lost());
  EXPECT_NE(rig.connection->trouble().find("more than it may"), std::string::npos);
}

// What workers say with some bytes changed, left out or repeated, while receives come and go.
TEST(TcpConnection, SurvivesAnythingThatArrives) {
  Rng rng(4);
  int lost = 0;
  for (int round = 0; round < 400; ++round) {
    Rig rig;
    Inbox& box = rig.connection->inbox(kChannel);
    std::vector<float> got(20'000, 1);
    const Inbox::Receive receive{{got.data(), got.size()},
                                 rng.below(2) == 0 ? Combine::copy : Combine::add};
    std::vector<std::byte> all;
    std::uint64_t sequence = 0;
    const std::vector<std::byte> message(got.size() * sizeof(float), std::byte{0});
    for (std::uint32_t number = 0; number < 3; ++number) {
      const auto frames = frames_of(message, number, sequence);
      all.insert(all.end(), frames.begin(), frames.end());
      const auto kind = static_cast<Kind>(2 + rng.below(10));
      append(all, {kind, kChannel, 0, 0, rng.below(1000), rng.below(1 << 20)}, nullptr, sequence);
    }
    for (std::uint64_t i = rng.below(6); i > 0; --i) {
      // Headers begin every few bytes: hit those rather than what is between them.
      const std::size_t at = rng.below(2) == 0 ? rng.below(all.size()) : rng.below(kFrameBytes);
      all[at] = static_cast<std::byte>(rng.below(256));
    }
    if (rng.below(4) == 0)
      all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rng.below(200)));
    const std::size_t half = rng.below(all.size());
    const bool posted = rng.below(2) == 0;
    if (posted) rig.connection->start(box, receive);
    rig.send({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(half)}, rng);
    if (posted && rng.below(2) == 0) {
      rig.connection->stop(box);
      if (rng.below(2) == 0) rig.connection->close(box);
    }
    rig.send({all.begin() + static_cast<std::ptrdiff_t>(half), all.end()}, rng);
    rig.turn();
    lost += rig.connection->lost() ? 1 : 0;
    if (box.receive) rig.connection->stop(box);
  }
  EXPECT_GT(lost, 50);
  EXPECT_LT(lost, 400);
}

}  // namespace
}  // namespace skein::tcp
