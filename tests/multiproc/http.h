// One HTTP request, for tests of the page.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace skein::testing {

// What `skein` prints: http://127.0.0.1:PORT/?token=TOKEN.
struct PageUrl {
  int port = 0;
  std::string token;

  // The first in `text`; with port 0 where there is none whose end is printed.
  static PageUrl in(const std::string& text) {
    const std::string begin = "http://127.0.0.1:", middle = "/?token=";
    const std::size_t at = text.find(begin), token = text.find(middle), end = text.find('\n', at);
    if (at == std::string::npos || token == std::string::npos || end == std::string::npos)
      return {};
    return {std::atoi(text.c_str() + at + begin.size()),
            text.substr(token + middle.size(), end - token - middle.size())};
  }
  std::string text(const std::string& more = "") const {
    return "http://127.0.0.1:" + std::to_string(port) + "/?token=" + token + more;
  }
};

// The whole answer, head and body; empty when nobody answers. `rest` are further lines of the head.
inline std::string ask(int port, const std::string& request, const std::string& rest = "") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string answer;
  const std::string all = request + " HTTP/1.1\r\nHost: x\r\n" + rest + "\r\n";
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size())) {
    char piece[65536];
    for (ssize_t got; (got = recv(fd, piece, sizeof piece, 0)) > 0;)
      answer.append(piece, static_cast<std::size_t>(got));
  }
  close(fd);
  return answer;
}

inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}

inline std::string body_of(const std::string& answer) {
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "" : answer.substr(at + 4);
}

}  // namespace skein::testing
