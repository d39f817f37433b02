// The launcher's end of the connection to the agent of a host.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/agent_messages.h"
#include "launch/outbox.h"

namespace skein {

// Nothing here waits, and what arrives is held back in bounded memory: the agent then waits.
class AgentLine {
 public:
  // What the process that leads to the host (ssh) gets as descriptors 0 and 1, and 2.
  struct FarEnd {
    FileDescriptor talk, errors;
  };
  static std::pair<AgentLine, FarEnd> open();  // throws Error

  void watch(std::vector<pollfd>& watched) const;

  // Reads and writes what can be. Throws IoError for what is no agent's greeting, with its end.
  void advance();

  void send(MessageKind kind, std::string_view body = {});
  void finish();  // the agent reads to the end of what was sent, and ends

  // What the agent calls its version, once it has greeted; see agent_messages.h.
  const std::optional<std::string>& version() const { return version_; }
  std::optional<Message> next();           // throws IoError for what is no message
  bool closed() const { return closed_; }  // by the other side; next() still has what came before
  bool readable() const;                   // advance() would read something
  std::size_t unsent() const { return outbox_.size(); }

  // Whether something has come since the last call, or would have been left unread.
  bool heard() { return std::exchange(heard_, false) || reader_.size() >= kMostHeldBack; }

  std::string errors() const;      // the last lines that ssh wrote
  std::string said_first() const;  // what came where a greeting was expected, likewise

 private:
  static constexpr std::size_t kMostHeldBack = 2 * kMostBody;

  AgentLine(FileDescriptor talk, FileDescriptor errors);
  void read_talk();
  void read_errors();
  void look_for_greeting();

  FileDescriptor talk_, errors_;
  Outbox outbox_;
  FrameReader reader_;
  std::string before_greeting_, skipped_, error_text_;
  std::optional<std::string> version_;
  bool closed_ = false, finishing_ = false, heard_ = false;
};

}  // namespace skein
