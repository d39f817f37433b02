// What is read at once, without a connection.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/check.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/hello.h"
#include "fuzz/targets.h"
#include "launch/agent_messages.h"
#include "skein/error.h"

namespace skein::fuzz {
namespace {

// As many bytes as there must be; zeros where there are fewer.
template <std::size_t kCount>
std::array<std::byte, kCount> exactly(Bytes bytes) {
  std::array<std::byte, kCount> out{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), kCount), out.begin());
  return out;
}

void decode_one(std::size_t which, std::string_view body) {
  switch (which % 6) {
    case 0:
      decode_hold(body);
      return;
    case 1:
      decode_start(body);
      return;
    case 2:
      decode_output(body);
      return;
    case 3:
      decode_record(body, Time{});
      return;
    case 4:
      decode_end(body);
      return;
    default:
      decode_number(body);
  }
}

}  // namespace

// What has been understood means the same when it is written and read again.
void frames(Bytes bytes) {
  for (Input input(bytes); !input.empty();) {
    try {
      const auto header = exactly<tcp::kFrameBytes>(input.take(tcp::kFrameBytes));
      const tcp::Frame frame = tcp::decode_frame(header);
      SKEIN_CHECK(tcp::decode_frame(tcp::encode(frame)) == frame, "another frame");
    } catch (const IoError&) {
    }
  }
}

void meeting(Bytes bytes) {
  Input input(bytes);
  const std::size_t which = input.byte();
  try {
    switch (which % 5) {
      case 0:
        tcp::decode_hello(exactly<tcp::kHelloBytes>(input.rest()));
        return;
      case 1:
        tcp::decode_answer(exactly<tcp::kAnswerBytes>(input.rest()));
        return;
      case 2:
        tcp::decode_roster(input.rest(), static_cast<int>(1 + which / 5 % 8));
        return;
      case 3:
        tcp::decode_received(input.rest());
        return;
      default:
        tcp::decode_text(input.rest());
    }
  } catch (const IoError&) {
  }
}

void agent(Bytes bytes) {
  Input input(bytes);
  const std::size_t which = input.byte();
  const auto text = [](Bytes part) {
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  };
  try {
    greeted_by(text(input.rest()));
    if (which % 2 == 0) return decode_one(which / 2, text(input.rest()));
    FrameReader reader;
    while (!input.empty()) {
      reader.add(text(input.take(1 + which / 2)));
      while (const auto message = reader.next())
        decode_one(static_cast<std::size_t>(message->kind), message->body);
    }
  } catch (const IoError&) {
  }
}

}  // namespace skein::fuzz
