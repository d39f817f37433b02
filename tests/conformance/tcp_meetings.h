// One worker's part of a meeting over TCP, in a thread of its own.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/loop.h"
#include "fabric/tcp/tcp.h"
#include "skein/error.h"

namespace skein::tcp {

// How a worker's meeting ended.
struct End {
  std::string error;  // empty: all were there
  bool config = false;
  int peer = -1;
  std::vector<std::string> said;
  Duration took{};
};

// Meets in a thread of its own.
inline std::future<End> start(TcpOptions options) {
  return std::async(std::launch::async, [options]() mutable {
    End end;
    const SteadyClock clock;
    const Time begin = clock.now();
    options.say = [&](const std::string& text) { end.said.push_back(text); };
    try {
      Loop loop(clock);
      const auto fabric = make_tcp_fabric(loop, options);
    } catch (const ConfigError& error) {
      end.error = error.what();
      end.config = true;
    } catch (const IoError& error) {
      end.error = error.what();
      end.peer = error.peer();
    }
    end.took = clock.now() - begin;
    return end;
  });
}

}  // namespace skein::tcp
