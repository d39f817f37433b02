#include "fabric/tcp/hello.h"

#include <fmt/format.h>

#include "fabric/tcp/bytes.h"
#include "fabric/tcp/tcp.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

constexpr std::uint64_t kHelloMark = 0x50435f4e49454b53;  // "SKEIN_CP"
constexpr std::uint32_t kAnswerMark = 0x414b5353;
constexpr std::size_t kVersionText = 24, kHostText = 46, kPlaceBytes = kHostText + 4;

void expect(bool holds, const char* what) {
  if (!holds) throw IoError(fmt::format("the other side sent {}", what));
}

}  // namespace

HelloBytes encode(const Hello& hello) {
  HelloBytes out{};
  ByteWriter writer(out);
  writer.put(kHelloMark);
  writer.put(hello.protocol);
  writer.put_text(hello.version, kVersionText);
  writer.put(hello.rank);
  writer.put(hello.size);
  writer.put(static_cast<std::uint8_t>(hello.encrypt ? 1 : 0));
  writer.put(hello.lane);
  writer.put_text(hello.host, kHostText);
  writer.put(hello.port);
  writer.put(hello.run);
  writer.put(hello.attempt);
  writer.put(hello.received);
  return out;
}

Hello decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  ByteReader reader(bytes);
  expect(reader.get<std::uint64_t>() == kHelloMark, "something else than a worker's hello");
  Hello hello;
  hello.protocol = reader.get<std::uint32_t>();
  hello.version = reader.get_text(kVersionText);
  if (hello.protocol != kProtocol) return hello;
  hello.rank = reader.get<std::uint32_t>();
  hello.size = reader.get<std::uint32_t>();
  const auto encrypt = reader.get<std::uint8_t>();
  hello.lane = reader.get<std::uint8_t>();
  hello.encrypt = encrypt == 1;
  hello.host = reader.get_text(kHostText);
  hello.port = reader.get<std::uint16_t>();
  hello.run = reader.get<Run>();
  hello.attempt = reader.get<std::uint32_t>();
  hello.received = reader.get<std::uint64_t>();
  expect(hello.size > 0 && hello.rank < hello.size && encrypt <= 1 && hello.lane < kMostTcpStreams,
         "an impossible hello");
  return hello;
}

AnswerBytes encode(const Answer& answer) {
  AnswerBytes out{};
  ByteWriter writer(out);
  writer.put(kAnswerMark);
  writer.put(static_cast<std::uint32_t>(answer.kind));
  writer.put(answer.length);
  return out;
}

Answer decode_answer(std::span<const std::byte, kAnswerBytes> bytes) {
  ByteReader reader(bytes);
  expect(reader.get<std::uint32_t>() == kAnswerMark, "something else than an answer");
  const auto kind = reader.get<std::uint32_t>();
  expect(kind >= static_cast<std::uint32_t>(Answer::Kind::roster) &&
             kind <= static_cast<std::uint32_t>(Answer::Kind::refusal),
         "an unknown answer");
  const Answer answer{static_cast<Answer::Kind>(kind), reader.get<std::uint32_t>()};
  expect(answer.length <= kMostOfAnAnswer, "too long an answer");
  return answer;
}

std::vector<std::byte> encode(const Roster& roster) {
  std::vector<std::byte> out(sizeof(Run) + kPlaceBytes * roster.places.size());
  ByteWriter writer(out);
  writer.put(roster.run);
  for (const Place& place : roster.places) {
    writer.put_text(place.host, kHostText);
    writer.put(static_cast<std::uint32_t>(place.port));
  }
  return out;
}

Roster decode_roster(std::span<const std::byte> bytes, int size) {
  expect(bytes.size() == sizeof(Run) + kPlaceBytes * static_cast<std::size_t>(size),
         "a roster of another size");
  ByteReader reader(bytes);
  Roster roster;
  roster.run = reader.get<Run>();
  while (reader.left() > 0) {
    const std::string host = reader.get_text(kHostText);
    const auto port = reader.get<std::uint32_t>();
    expect(port <= 65535, "an impossible port");
    roster.places.push_back({host, static_cast<std::uint16_t>(port)});
  }
  return roster;
}

std::vector<std::byte> encode_received(std::uint64_t frames) {
  std::vector<std::byte> out(sizeof(frames));
  ByteWriter(out).put(frames);
  return out;
}

std::uint64_t decode_received(std::span<const std::byte> bytes) {
  expect(bytes.size() == sizeof(std::uint64_t), "a welcome of another size");
  return ByteReader(bytes).get<std::uint64_t>();
}

std::string decode_text(std::span<const std::byte> bytes) {
  return ByteReader(bytes).get_text(bytes.size());
}

}  // namespace skein::tcp
