// What the launcher and the agent of a host say to each other over ssh.
//
// The agent begins with a line of text, after which both send frames: a byte that says what it is,
// the length of what follows (four bytes, the lowest first), and that. Neither believes the other:
// what is too long, unknown or cut short is an IoError.
//
// Both also send a sign of life now and then (keepalive.h), since a connection does not end when a
// host loses its power or a network is cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/worker_group.h"

namespace skein {

enum class MessageKind : std::uint8_t {
  // To the agent.
  hold = 1,      // keep a port at this address for rank 0
  start,         // these workers
  signal,        // to all of them
  kill_one,      // a rank
  report_often,  // what the workers are doing
  pulse,         // the launcher lives; milliseconds of silence after which it does not; 0: for ever
  // From the agent.
  held = 65,  // the port
  refused,    // why nothing can be started here
  started,    // all of them
  output,     // of a rank
  record,     // what a rank is doing
  ended,      // how a rank ended
  alive       // the agent lives
};

struct Message {
  MessageKind kind{};
  std::string body;
};

inline constexpr std::size_t kMostBody = 1 << 20;              // bytes of a frame
inline constexpr std::size_t kMostOutputOfAMessage = 1 << 14;  // fits a pipe that is empty

std::string frame(MessageKind kind, std::string_view body = {});

// Cuts what arrives into frames.
class FrameReader {
 public:
  void add(std::string_view bytes) { pending_ += bytes; }
  std::optional<Message> next();
  std::size_t size() const { return pending_.size(); }  // bytes that next() has not given

 private:
  std::string pending_;
};

// The agent's first line, without its end; and the version of Skein that such a line names, or
// nullopt when it is another kind of line. Versions are only equal when the protocol is too.
std::string greeting();
std::optional<std::string> greeted_by(std::string_view line);
std::string agent_version();  // what greeting() says

struct HoldOrder {
  std::string host;
  bool loopback_will_do = false;
};
struct StartOrder {
  std::string folder;        // to work in
  bool own_program = false;  // argv[0] is the agent's own executable
  WorkerPlan plan;
};
struct Output {
  int rank = 0;
  bool error = false;  // of standard error
  std::string bytes;
};
// Times are ages, in nanoseconds: hosts have clocks of their own.
struct RecordNews {
  int rank = 0;
  bool stopped = false;
  BoardRecord record;
};
struct EndNews {
  int rank = 0;
  WorkerEnd end;
};

std::string encode(const HoldOrder& order);
std::string encode(const StartOrder& order);
std::string encode(const Output& output);
std::string encode(const RecordNews& news, Time now);
std::string encode(const EndNews& news);
std::string encode_number(int number);

HoldOrder decode_hold(std::string_view body);
StartOrder decode_start(std::string_view body);
Output decode_output(std::string_view body);
RecordNews decode_record(std::string_view body, Time now);
EndNews decode_end(std::string_view body);
int decode_number(std::string_view body);

}  // namespace skein
