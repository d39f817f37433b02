#include "launch/host_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "skein/error.h"

namespace skein {
namespace {

constexpr auto kEndOfSsh = std::chrono::seconds(1);  // from the end of its output to its own

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

}  // namespace

HostLink::HostLink(const Host& host, int first_rank, std::vector<std::string> command, Crew& ways,
                   const sigset_t& signal_mask, std::chrono::milliseconds silence, Time now)
    : host_(host),
      first_rank_(first_rank),
      command_(std::move(command)),
      ways_(ways),
      process_(ways.size()),
      keepalive_(silence, now) {
  auto [line, far] = AgentLine::open();
  line_ = std::make_unique<AgentLine>(std::move(line));
  WorkerStart how;
  how.argv = command_;
  how.environment = own_environment();
  how.input = how.output = far.talk.get();
  how.error = far.errors.get();
  how.signal_mask = signal_mask;
  ways.start(how);
}

void HostLink::watch(std::vector<pollfd>& watched) const {
  watched.push_back({ways_.descriptor(process_), POLLIN, 0});  // -1 is skipped by poll
  line_->watch(watched);
}

void HostLink::check_version() const {
  if (greeted() && *line_->version() != agent_version())
    throw ConfigError(fmt::format("host {} has Skein {}, this is Skein {}: expected the same",
                                  host_.name, *line_->version(), agent_version()));
}

void HostLink::pulse(Time now, std::chrono::milliseconds limit) {
  if (!greeted() || (announced_ && !keepalive_.due(now))) return;
  keepalive_.sent(now);
  if (line_->unsent() == 0) announce(limit);
}

void HostLink::announce(std::chrono::milliseconds limit) {
  if (!greeted()) return;
  announced_ = true;
  line_->send(MessageKind::pulse, encode_number(static_cast<int>(limit.count())));
}

bool HostLink::silent(Time now) {
  if (line_->heard()) keepalive_.heard(now);
  return keepalive_.lost(now) && greeted() && !line_->readable();
}

bool HostLink::has_ended(Time now) {
  if (!end_) end_ = ways_.reap(process_);
  if (!end_ && !line_->closed()) return false;
  closed_at_ = std::min(closed_at_, now);
  return end_ || now >= closed_at_ + kEndOfSsh;
}

Time HostLink::next_look() const { return closed_at_ == kNever ? kNever : closed_at_ + kEndOfSsh; }

std::string HostLink::why_it_ended() const {
  std::string out = "the connection was closed";
  if (end_ && end_->signal != 0)
    out = fmt::format("{} was killed by SIG{}", command_.front(), sigabbrev_np(end_->signal));
  else if (end_ && end_->code != 0)
    out = fmt::format("{} ended with code {}", command_.front(), end_->code);
  if (!line_->errors().empty()) out += ": " + line_->errors();
  if (!greeted() && !line_->said_first().empty())
    out += fmt::format(" (it said '{}')", line_->said_first());
  constexpr int kNotFound = 127;  // of a shell
  if (end_ && end_->code == kNotFound && !greeted())
    out += "; is Skein there? Expected --remote-skein PATH";
  return out;
}

std::string HostLink::no_answer(std::chrono::milliseconds patience) const {
  std::string out = fmt::format("no answer of an agent within {} s",
                                static_cast<double>(patience.count()) / 1000);
  if (!line_->errors().empty()) out += ": " + line_->errors();
  if (!greeted() && !line_->said_first().empty())
    out += fmt::format(" (it said '{}')", line_->said_first());
  return out;
}

void HostLink::finish() {
  line_->finish();
  if (line_->version() != agent_version()) ways_.kill_one(process_);
}

void HostLink::give_up() {
  given_up_ = true;
  ways_.kill_one(process_);
}

}  // namespace skein
