#include "launch/agent_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/descriptor_limit.h"
#include "skein/error.h"

namespace skein {
namespace {

// The shells of some hosts print a welcome first, which is passed over.
constexpr std::size_t kMostBeforeGreeting = std::size_t{1} << 16;
constexpr std::size_t kMostErrors = 4000;

// The last lines of a text that may hold anything, as one line.
std::string as_one_line(std::string_view text) {
  constexpr std::size_t kMost = 300;
  if (text.size() > kMost) text.remove_prefix(text.size() - kMost);
  std::string out;
  for (const char c : text) {
    if (c == '\r') continue;
    if (c != '\n')
      out += static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
    else if (!out.empty() && !out.ends_with("; "))
      out += "; ";
  }
  while (out.ends_with("; ")) out.resize(out.size() - 2);
  return out;
}

// Passes what can be read to `take`. False at the end.
template <typename Take>
bool read_some(int descriptor, Take take) {
  std::array<char, 1 << 14> chunk;
  const ssize_t count = ::read(descriptor, chunk.data(), chunk.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  take(std::string_view(chunk.data(), static_cast<std::size_t>(count)));
  return count > 0;
}

}  // namespace

std::pair<AgentLine, AgentLine::FarEnd> AgentLine::open() {
  int talk[2], errors[2];
  const auto fail = [] {
    throw Error(fmt::format("cannot make a connection to a process: {}", system_error_text(errno)));
  };
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) != 0) fail();
  FileDescriptor near(talk[0]), far(talk[1]);
  if (::pipe2(errors, O_CLOEXEC) != 0) fail();
  AgentLine line(std::move(near), FileDescriptor(errors[0]));
  return {std::move(line), FarEnd{std::move(far), FileDescriptor(errors[1])}};
}

AgentLine::AgentLine(FileDescriptor talk, FileDescriptor errors)
    : talk_(std::move(talk)), errors_(std::move(errors)), outbox_(talk_.get()) {
  make_nonblocking(talk_.get());
  make_nonblocking(errors_.get());
}

void AgentLine::watch(std::vector<pollfd>& watched) const {
  if (!closed_) {
    pollfd talk{talk_.get(), 0, 0};
    if (reader_.size() < kMostHeldBack) talk.events |= POLLIN;
    if (outbox_.size() > 0) talk.events |= POLLOUT;
    if (talk.events != 0) watched.push_back(talk);  // its end would end the wait again and again
  }
  watched.push_back({errors_.get(), POLLIN, 0});  // -1 is skipped by poll
}

void AgentLine::advance() {
  if (!outbox_.flush()) closed_ = true;
  if (finishing_ && outbox_.size() == 0) ::shutdown(talk_.get(), SHUT_WR);
  if (!closed_ && reader_.size() < kMostHeldBack) read_talk();
  if (errors_.valid()) read_errors();
}

void AgentLine::read_talk() {
  const bool more = read_some(talk_.get(), [&](std::string_view bytes) {
    heard_ = true;
    if (version_) return reader_.add(bytes);
    before_greeting_ += bytes;
    look_for_greeting();
  });
  if (!more) closed_ = true;
}

void AgentLine::look_for_greeting() {
  for (std::size_t end; !version_ && (end = before_greeting_.find('\n')) != std::string::npos;) {
    version_ = greeted_by(std::string_view(before_greeting_).substr(0, end));
    if (!version_) skipped_ += before_greeting_.substr(0, end + 1);
    before_greeting_.erase(0, end + 1);
  }
  if (version_) reader_.add(std::exchange(before_greeting_, ""));
  if (skipped_.size() + before_greeting_.size() > kMostBeforeGreeting)
    throw IoError("what it says is no greeting of 'skein agent': " + said_first());
}

void AgentLine::read_errors() {
  const bool more = read_some(errors_.get(), [&](std::string_view bytes) {
    error_text_ += bytes;
    if (error_text_.size() > kMostErrors) error_text_.erase(0, error_text_.size() - kMostErrors);
  });
  if (!more) errors_ = FileDescriptor();
}

void AgentLine::send(MessageKind kind, std::string_view body) {
  if (closed_ || finishing_) return;
  outbox_.add(frame(kind, body));
  if (!outbox_.flush()) closed_ = true;
}

void AgentLine::finish() {
  finishing_ = true;
  if (outbox_.size() == 0) ::shutdown(talk_.get(), SHUT_WR);
}

std::optional<Message> AgentLine::next() { return version_ ? reader_.next() : std::nullopt; }

bool AgentLine::readable() const {
  pollfd watched[] = {{closed_ ? -1 : talk_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
  return ::poll(watched, 2, 0) > 0;
}

std::string AgentLine::errors() const { return as_one_line(error_text_); }
std::string AgentLine::said_first() const { return as_one_line(skipped_ + before_greeting_); }

}  // namespace skein
