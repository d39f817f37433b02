// A connection in clear whose peer sends what the input says while receives and sends come and go.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "core/check.h"
#include "fabric/tcp/connection.h"
#include "fuzz/targets.h"
#include "skein/error.h"

namespace skein::fuzz {
namespace {

using namespace tcp;

constexpr std::size_t kCount = 40'000;  // more than two frames of floats
constexpr int kChannels = 3;

class Rig {
 public:
  Rig() {
    attach_new();
    connection_->on_broken = [](std::size_t) {};
    for (auto& buffer : buffers_) buffer.resize(kCount);
  }
  ~Rig() {
    for (Channel channel = 0; channel < kChannels; ++channel) stop(channel);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  bool over() const { return connection_->lost(); }

  void step(Input& input) {
    const std::size_t what = input.byte();
    const auto channel = static_cast<Channel>(what / 16 % kChannels);
    switch (what % 16) {
      case 0:
        return start(channel, input.byte());
      case 1:
        return stop(channel);
      case 2:
        return pop(channel);
      case 3:
        return post(channel, input.number());
      case 4:
        return connection_->keep_messages(connection_->outbox(channel));
      case 5:
        return connection_->close(connection_->outbox(channel));
      case 6:
        return connection_->close(connection_->inbox(channel));
      case 7:
        return attach_again(input.byte());
      case 8:
        return connection_->beat();
      case 9:
        return connection_->ask();
      case 10:
        return feed(input.take(input.number() % 300));
      default:
        return feed_frame(input, what);
    }
  }

 private:
  using End = std::unique_ptr<Stream>;

  // In clear from the beginning: what is before that is OpenSSL's.
  std::pair<End, End> ends() {
    static const Tls tls(derive_key("a secret of the tests"));
    int sockets[2];
    SKEIN_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0,
                "no sockets");
    auto mine = std::make_unique<Stream>(poller_, FileDescriptor(sockets[0]), tls, Side::accepts);
    auto other = std::make_unique<Stream>(poller_, FileDescriptor(sockets[1]), tls, Side::connects);
    mine->go_on_in_clear();
    other->go_on_in_clear();
    return {std::move(mine), std::move(other)};
  }

  void attach_new() {
    auto [mine, other] = ends();
    others_.push_back(std::move(other));
    connection_.emplace(loop_, std::move(mine), signs_, ConnectionOptions{kLeastSilence, 2, 3});
  }

  void attach_again(std::size_t which) {
    if (over()) return;
    auto [mine, other] = ends();
    const std::size_t index = which % 3;
    if (others_.size() <= index) others_.resize(index + 1);
    Lane& lane = connection_->lane(index);
    connection_->break_off(lane);
    others_[index] = std::move(other);
    try {
      connection_->attach(lane, std::move(mine), which / 3);
    } catch (const IoError& error) {
      connection_->lose(error.what());
    }
  }

  void turn() {
    for (int i = 0; i < 12; ++i) {
      poller_.poll();
      loop_.run_ready();
    }
    std::array<std::byte, 4096> dropped;
    for (const End& other : others_)
      while (other && ::recv(other->socket(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {
      }
  }

  void feed(Bytes bytes) {
    const End& other = others_[fed_++ % others_.size()];
    for (std::size_t at = 0; other && at < bytes.size() && !over();) {
      const ssize_t sent =
          ::send(other->socket(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      turn();
      if (sent < 0 && errno != EAGAIN) return;
    }
  }

  // A frame that gets past decode_frame(), with numbers that are near each other.
  void feed_frame(Input& input, std::size_t what) {
    constexpr std::array<std::uint64_t, 6> kTotals{0, 4, 4096, kMostOfAFrame, 4 * kCount, 1 << 22};
    Frame frame;
    const std::size_t kind = input.byte();
    frame.kind = kind < 160 ? Kind::data : static_cast<Kind>(1 + kind % 11);
    frame.channel = static_cast<std::uint32_t>(what / 16 % kChannels);
    frame.number = static_cast<std::uint32_t>(input.byte() % 8);
    frame.total = kTotals[input.byte() % kTotals.size()];
    if (frame.kind == Kind::data) {
      frame.offset = kMostOfAFrame * (input.byte() % 4);
      frame.offset = std::min(frame.offset, frame.total / kMostOfAFrame * kMostOfAFrame);
      frame.length = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(kMostOfAFrame, frame.total - frame.offset));
    } else {
      frame.offset = input.byte();
      if (frame.kind == Kind::failed) frame.length = 3;
    }
    frame.prompt = kind % 2 == 1;
    if (numbered(frame.kind)) frame.sequence = std::max<std::size_t>(1, next_ + input.byte() % 4);
    if (frame.sequence == next_) ++next_;
    const FrameBytes header = encode(frame);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + frame.length);
    if (kind % 7 == 0) bytes.resize(bytes.size() / 2);  // the rest of it never comes
    feed(bytes);
  }

  void start(Channel channel, std::size_t how) {
    Inbox& box = connection_->inbox(channel);
    if (box.receive || box.closed) return;
    constexpr std::array<std::size_t, 4> kCounts{0, 1, 1024, kCount};
    auto& buffer = buffers_[static_cast<std::size_t>(channel)];
    receives_[static_cast<std::size_t>(channel)].emplace(Inbox::Receive{
        {buffer.data(), kCounts[how % 4]}, how / 4 % 2 == 0 ? Combine::copy : Combine::add});
    connection_->start(box, *receives_[static_cast<std::size_t>(channel)]);
  }
  void stop(Channel channel) { connection_->stop(connection_->inbox(channel)); }
  void pop(Channel channel) {
    Inbox& box = connection_->inbox(channel);
    if (box.arrivals.empty() || !box.arrivals.front().complete()) return;
    connection_->stop(box);
    if (!box.closed) connection_->pop(box);
  }
  void post(Channel channel, std::size_t count) {
    Outbox& box = connection_->outbox(channel);
    if (box.closed || box.refused || over() || box.waiting() > 8) return;
    connection_->post(box, {sent_.data(), count % sent_.size()});
  }

  const SteadyClock clock_;
  Loop loop_{clock_};
  Poller poller_;
  Signs signs_{clock_.now()};
  std::vector<float> sent_ = std::vector<float>(kCount);
  std::array<std::vector<float>, kChannels> buffers_;
  std::array<std::optional<Inbox::Receive>, kChannels> receives_;
  std::vector<End> others_;
  std::optional<Connection> connection_;
  std::size_t fed_ = 0;
  std::uint64_t next_ = 1;
};

}  // namespace

void connection(Bytes bytes) {
  constexpr int kMostSteps = 200;
  Rig rig;
  Input input(bytes);
  for (int i = 0; i < kMostSteps && !input.empty() && !rig.over(); ++i) rig.step(input);
}

}  // namespace skein::fuzz
