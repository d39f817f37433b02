#include "launch/agent_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "launch/hosts.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr int kProtocol = 2;  // changes with anything below
constexpr std::string_view kGreeting = "skein agent, protocol ";
constexpr std::size_t kHeader = 5;

class Packer {
 public:
  Packer& number(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      out_ += static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xff);
    return *this;
  }
  Packer& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    out_ += value;
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view body) : rest_(body) {}

  std::int64_t number() {
    const std::string_view bytes = cut(8);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return static_cast<std::int64_t>(value);
  }
  int number(std::int64_t low, std::int64_t high) {
    const std::int64_t value = number();
    if (value < low || value > high)
      throw IoError(fmt::format("a message has {}: expected {} to {}", value, low, high));
    return static_cast<int>(value);
  }
  bool truth() { return number(0, 1) == 1; }
  std::string text() {
    return std::string(cut(static_cast<std::size_t>(number(0, static_cast<int>(kMostBody)))));
  }
  void end() const {
    if (!rest_.empty()) throw IoError("a message is longer than what it says");
  }

 private:
  std::string_view cut(std::size_t bytes) {
    if (rest_.size() < bytes) throw IoError("a message is cut short");
    const std::string_view out = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return out;
  }

  std::string_view rest_;
};

constexpr int kMostRank = kMostWorkersOfARun - 1;
constexpr int kMostWords = 1 << 16;

std::int64_t age(Time then, Time now) { return (now - then).count(); }

Time before(Time now, std::int64_t age) {
  // A host that says nonsense cannot make the sum overflow.
  constexpr std::int64_t kLongest = std::int64_t{1} << 60;
  return now - Duration(std::clamp<std::int64_t>(age, 0, kLongest));
}

bool known(MessageKind kind) {
  return (kind >= MessageKind::hold && kind <= MessageKind::pulse) ||
         (kind >= MessageKind::held && kind <= MessageKind::alive);
}

}  // namespace

std::string frame(MessageKind kind, std::string_view body) {
  if (body.size() > kMostBody)
    throw ConfigError(fmt::format(
        "the command line and the environment of the workers have {} bytes: expected at most {}",
        body.size(), kMostBody));
  std::string out(1, static_cast<char>(kind));
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(body.size() >> shift & 0xff);
  return out += body;
}

std::optional<Message> FrameReader::next() {
  if (pending_.empty()) return std::nullopt;
  const auto kind = static_cast<MessageKind>(pending_[0]);
  if (!known(kind)) throw IoError("it sent what is no message of Skein");
  if (pending_.size() < kHeader) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(pending_[i + 1])) << (8 * i);
  if (length > kMostBody) throw IoError(fmt::format("it sent a message of {} bytes", length));
  if (pending_.size() < kHeader + length) return std::nullopt;
  Message out{kind, pending_.substr(kHeader, length)};
  pending_.erase(0, kHeader + length);
  return out;
}

std::string agent_version() { return SKEIN_VERSION; }

std::string greeting() {
  return fmt::format("{}{}, version {}", kGreeting, kProtocol, agent_version());
}

std::optional<std::string> greeted_by(std::string_view line) {
  if (!line.starts_with(kGreeting) || line.size() > 200) return std::nullopt;
  if (line == greeting()) return agent_version();
  line.remove_prefix(kGreeting.size());
  std::string out;
  for (const char c : line) out += c >= ' ' && c < 127 ? c : '?';
  return "(protocol " + out + ")";
}

std::string encode(const HoldOrder& order) {
  return Packer().text(order.host).number(order.loopback_will_do).take();
}

HoldOrder decode_hold(std::string_view body) {
  Unpacker in(body);
  HoldOrder out;
  out.host = in.text();
  out.loopback_will_do = in.truth();
  in.end();
  return out;
}

std::string encode(const StartOrder& order) {
  const WorkerPlan& plan = order.plan;
  Packer out;
  out.text(order.folder).number(order.own_program);
  out.number(static_cast<std::int64_t>(plan.argv.size()));
  for (const std::string& word : plan.argv) out.text(word);
  out.number(static_cast<std::int64_t>(plan.environment.size()));
  for (const auto& [name, value] : plan.environment) out.text(name).text(value);
  out.number(plan.first_rank).number(plan.workers).number(plan.size);
  out.text(plan.run_id).text(plan.rendezvous).text(plan.secret);
  return out.take();
}

StartOrder decode_start(std::string_view body) {
  Unpacker in(body);
  StartOrder out;
  WorkerPlan& plan = out.plan;
  out.folder = in.text();
  out.own_program = in.truth();
  for (int words = in.number(1, kMostWords); words > 0; --words) plan.argv.push_back(in.text());
  for (int names = in.number(0, kMostWords); names > 0; --names) {
    std::string name = in.text();
    plan.environment[std::move(name)] = in.text();
  }
  plan.first_rank = in.number(0, kMostRank);
  plan.workers = in.number(1, kMostWorkersOfARun);
  plan.size = in.number(1, kMostWorkersOfARun);
  if (plan.first_rank + plan.workers > plan.size) throw IoError("a message has ranks of no run");
  plan.run_id = in.text();
  plan.rendezvous = in.text();
  plan.secret = in.text();
  in.end();
  return out;
}

std::string encode(const Output& output) {
  return Packer().number(output.rank).number(output.error).text(output.bytes).take();
}

Output decode_output(std::string_view body) {
  Unpacker in(body);
  Output out;
  out.rank = in.number(0, kMostRank);
  out.error = in.truth();
  out.bytes = in.text();
  if (out.bytes.size() > kMostOutputOfAMessage) throw IoError("a message has too much output");
  in.end();
  return out;
}

std::string encode(const RecordNews& news, Time now) {
  const BoardRecord& record = news.record;
  return Packer()
      .number(news.rank)
      .number(news.stopped)
      .number(record.pid)
      .number(record.step)
      .number(record.samples)
      .number(static_cast<std::int64_t>(record.phase))
      .number(record.waiting_for)
      .text(record.operation)
      .number(age(record.changed, now))
      .text(record.failure)
      .number(static_cast<std::int64_t>(record.failed_in))
      .number(age(record.failed_at, now))
      .number(record.lost_peer)
      .take();
}

RecordNews decode_record(std::string_view body, Time now) {
  constexpr int kMostPhase = static_cast<int>(Phase::loading);
  Unpacker in(body);
  RecordNews out;
  BoardRecord& record = out.record;
  out.rank = in.number(0, kMostRank);
  out.stopped = in.truth();
  record.pid = in.number(0, 1 << 30);
  record.step = in.number();
  record.samples = in.number();
  record.phase = static_cast<Phase>(in.number(0, kMostPhase));
  record.waiting_for = in.number(-1, kMostRank);
  record.operation = in.text();
  record.changed = before(now, in.number());
  record.failure = in.text();
  record.failed_in = static_cast<Phase>(in.number(0, kMostPhase));
  record.failed_at = before(now, in.number());
  record.lost_peer = in.number(-1, kMostRank);
  in.end();
  return out;
}

std::string encode(const EndNews& news) {
  return Packer().number(news.rank).number(news.end.signal).number(news.end.code).take();
}

EndNews decode_end(std::string_view body) {
  Unpacker in(body);
  EndNews out;
  out.rank = in.number(0, kMostRank);
  out.end.signal = in.number(0, 64);
  out.end.code = in.number(0, 255);
  in.end();
  return out;
}

std::string encode_number(int number) { return Packer().number(number).take(); }

int decode_number(std::string_view body) {
  Unpacker in(body);
  const int out = in.number(0, 1 << 30);  // milliseconds of some days
  in.end();
  return out;
}

}  // namespace skein
