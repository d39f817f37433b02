// What workers say to each other when they meet, over a connection on which both have shown that
// they belong to the run.
//
// A worker says hello, to rank 0 first. When all are there, rank 0 hands out the roster: who
// listens where, and a random number that marks the run. With it workers say hello to each other
// and are welcomed. A worker that has lost a stream to another, or wants one more, says hello once
// more: both say what they have received, and go on from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skein::tcp {

// Changes with what is sent.
inline constexpr std::uint32_t kProtocol = 2;

using Run = std::array<std::byte, 16>;  // the number that marks a run; zeros before it is known

struct Hello {
  std::uint32_t protocol = kProtocol;
  std::string version;  // of Skein
  std::uint32_t rank = 0, size = 1;
  bool encrypt = true;
  std::string host;  // where this worker listens for others
  std::uint16_t port = 0;
  Run run{};
  std::uint8_t lane = 0;       // which of the streams between the two it is
  std::uint32_t attempt = 0;   // 0: it joins; else it goes on, and how often it had a stream before
  std::uint64_t received = 0;  // frames, when it goes on
};

inline constexpr std::size_t kHelloBytes = 128;
using HelloBytes = std::array<std::byte, kHelloBytes>;

HelloBytes encode(const Hello& hello);

// Throws IoError for what is no hello. Of another protocol's only that and the version count.
Hello decode_hello(std::span<const std::byte, kHelloBytes> bytes);

struct Place {
  std::string host;
  std::uint16_t port = 0;
};

struct Roster {
  Run run{};
  std::vector<Place> places;  // by rank; rank 0's is not needed
};

// The answer to a hello: a header, and then a body.
struct Answer {
  enum class Kind : std::uint32_t { roster = 1, welcome, refusal };
  Kind kind = Kind::welcome;
  std::uint32_t length = 0;  // of the body
};

inline constexpr std::size_t kAnswerBytes = 16;
inline constexpr std::uint32_t kMostOfAnAnswer = 1 << 20;
using AnswerBytes = std::array<std::byte, kAnswerBytes>;

AnswerBytes encode(const Answer& answer);
Answer decode_answer(std::span<const std::byte, kAnswerBytes> bytes);  // throws IoError

std::vector<std::byte> encode(const Roster& roster);

// Throws IoError unless it has as many places as the run has workers.
Roster decode_roster(std::span<const std::byte> bytes, int size);

// What the answer to one that goes on says: how many frames have been received.
std::vector<std::byte> encode_received(std::uint64_t frames);
std::uint64_t decode_received(std::span<const std::byte> bytes);  // throws IoError

// A text of a refusal, fit to be shown.
std::string decode_text(std::span<const std::byte> bytes);

}  // namespace skein::tcp
