#include "launch/remote_group.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "launch/shell.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr auto kKillLimit = 2s;      // from SIGKILL to the news that all have ended
constexpr auto kEndOfSsh = 1s;       // from the end of its output to its own
constexpr auto kLastWords = 3000ms;  // for agents to end when the run is over

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

FileDescriptor copy_of(int descriptor) {
  FileDescriptor out(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!out.valid())
    throw Error(fmt::format("cannot open the output of a worker: {}", std::strerror(errno)));
  return out;
}

// Output that cannot be written has nowhere else to go, so errors are dropped.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool ends_a_process(int number) { return number != SIGSTOP && number != SIGCONT; }

}  // namespace

RemoteGroup::RemoteGroup(RemoteOptions options, WorkerPlan plan)
    : options_(std::move(options)), plan_(std::move(plan)) {
  SKEIN_CHECK(plan_.size == total_workers(options_.hosts), "{} workers on hosts for {}", plan_.size,
              total_workers(options_.hosts));
  for (std::size_t host = 0; host < options_.hosts.size(); ++host)
    for (int each = 0; each < options_.hosts[host].workers; ++each) {
      workers_.emplace_back();
      workers_.back().host = host;
    }
}

RemoteGroup::~RemoteGroup() {
  for (std::size_t host = 0; host < agents_.size(); ++host) finish(host);
  const Time until = clock_.now() + kLastWords;
  const auto ended = [&](std::size_t host) {
    return agents_[host].gone || agents_[host].end ||
           ways_.reap(static_cast<int>(host)).has_value();
  };
  for (std::size_t host = 0; host < agents_.size(); ++host)
    while (!ended(host) && clock_.now() < until) {
      std::vector<pollfd> watched{{ways_.descriptor(static_cast<int>(host)), POLLIN, 0}};
      agents_[host].line->watch(watched);
      poll(watched.data(), watched.size(), 50);
      try {
        agents_[host].line->advance();
        while (agents_[host].line->next()) {
        }
      } catch (const Error&) {
        ways_.kill_one(static_cast<int>(host));  // it would not end by itself
      }
    }
}

// What has not greeted as our agents do need not know when to end.
void RemoteGroup::finish(std::size_t host) {
  agents_[host].line->finish();
  if (agents_[host].line->version() != agent_version()) ways_.kill_one(static_cast<int>(host));
}

void RemoteGroup::start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) {
  worker(rank).output = copy_of(streams.output);
  if (streams.error != streams.output) worker(rank).error = copy_of(streams.error);
  if (rank + 1 == plan_.size) connect(signal_mask);
}

std::vector<std::string> RemoteGroup::command(const Host& host) const {
  if (is_this_host(host.name) && !options_.ssh_to_this_host) return {options_.program, "agent"};
  std::vector<std::string> words = options_.ssh;
  words.push_back(host.name);
  words.push_back(shell_quoted(options_.program));  // a shell reads it there
  words.emplace_back("agent");
  return words;
}

void RemoteGroup::connect(const sigset_t& signal_mask) {
  begin_limit_ = clock_.now() + options_.patience;
  int rank = 0;
  for (const Host& host : options_.hosts) {
    auto [line, far] = AgentLine::open();
    WorkerStart how;
    how.argv = command(host);
    how.environment = own_environment();
    how.input = how.output = far.talk.get();
    how.error = far.errors.get();
    how.signal_mask = signal_mask;
    ways_.start(how);
    Agent agent;
    agent.line = std::make_unique<AgentLine>(std::move(line));
    agent.first_rank = std::exchange(rank, rank + host.workers);
    agents_.push_back(std::move(agent));
  }
}

int RemoteGroup::alive() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [](const Worker& worker) { return !worker.reaped; }));
}

void RemoteGroup::watch(std::vector<pollfd>& watched) const {
  for (std::size_t host = 0; host < agents_.size(); ++host) {
    if (agents_[host].gone) continue;
    watched.push_back({ways_.descriptor(static_cast<int>(host)), POLLIN, 0});
    agents_[host].line->watch(watched);
  }
}

Time RemoteGroup::next_turn() const {
  if (more_to_take_) return Time();
  Time out = std::min(state_ == State::begun ? kNever : begin_limit_, kill_limit_);
  for (const Agent& agent : agents_)
    if (!agent.gone && agent.closed_at != kNever) out = std::min(out, agent.closed_at + kEndOfSsh);
  return out;
}

void RemoteGroup::advance() {
  more_to_take_ = false;
  for (std::size_t host = 0; host < agents_.size(); ++host)
    if (!agents_[host].gone) advance(host);
  if (state_ == State::greeting) meet();
  const Time now = clock_.now();
  for (std::size_t host = 0; host < agents_.size(); ++host) {
    if (agents_[host].gone) continue;
    const bool silent = !agents_[host].line->version() || (state_ == State::holding && host == 0);
    if (state_ != State::begun && now >= begin_limit_ && silent) give_up(host, no_answer(host));
    if (now >= kill_limit_ && has_living(host))
      give_up(host, "it does not say whether its workers have ended");
  }
}

void RemoteGroup::advance(std::size_t host) {
  Agent& agent = agents_[host];
  try {
    agent.line->advance();
    check_version(host);
    if (take_messages(host)) return;
  } catch (const IoError& error) {
    return give_up(host, error.what());
  }
  look_for_end(host);
}

void RemoteGroup::check_version(std::size_t host) const {
  const auto& version = agents_[host].line->version();
  if (version && *version != agent_version())
    throw ConfigError(fmt::format("host {} has Skein {}, this is Skein {}: expected the same",
                                  name(host), *version, agent_version()));
}

// One message of output at a time: it may go to a pipe that this thread has to empty. True when
// there is more.
bool RemoteGroup::take_messages(std::size_t host) {
  while (auto message = agents_[host].line->next()) {
    take(host, *message);
    if (message->kind == MessageKind::output) return more_to_take_ = true;
  }
  return false;
}

void RemoteGroup::take(std::size_t host, const Message& message) {
  switch (message.kind) {
    case MessageKind::held:
      if (state_ != State::holding || host != 0)
        throw IoError("it holds a port without being asked");
      return begin(join_host_port(
          options_.rendezvous.empty() ? options_.hosts[0].address() : options_.rendezvous,
          decode_number(message.body)));
    case MessageKind::refused:
      throw ConfigError(fmt::format("host {}: {}", name(host), message.body));
    case MessageKind::started:
      return;
    case MessageKind::output: {
      const Output output = decode_output(message.body);
      checked(host, output.rank);
      return print(output);
    }
    case MessageKind::record: {
      RecordNews news = decode_record(message.body, clock_.now());
      Worker& told = worker(checked(host, news.rank));
      told.record = std::move(news.record);
      told.stopped = news.stopped;
      return;
    }
    case MessageKind::ended: {
      const EndNews news = decode_end(message.body);
      end(checked(host, news.rank), news.end);
      if (!has_living(host)) finish(host);
      return;
    }
    default:
      throw IoError("it sent what only launchers send");
  }
}

int RemoteGroup::checked(std::size_t host, int rank) const {
  if (rank >= plan_.size || worker(rank).host != host || state_ != State::begun)
    throw IoError(fmt::format("it told of rank {}, which is not one of its own", rank));
  return rank;
}

void RemoteGroup::print(const Output& output) {
  Worker& from = worker(output.rank);
  const FileDescriptor& to = output.error && from.error.valid() ? from.error : from.output;
  if (to.valid()) write_all(to.get(), output.bytes);
}

// When all have greeted, the first one keeps a port for rank 0, unless the user has chosen one.
void RemoteGroup::meet() {
  for (const Agent& agent : agents_)
    if (!agent.line->version()) return;
  if (has_port(options_.rendezvous)) return begin(options_.rendezvous);
  HoldOrder order;
  order.host = options_.rendezvous.empty() ? options_.hosts[0].address() : options_.rendezvous;
  // What only one host means by its name will do when all are that host.
  order.loopback_will_do =
      std::all_of(options_.hosts.begin(), options_.hosts.end(),
                  [](const Host& host) { return names_loopback(host.address()); }) ||
      options_.hosts.size() == 1;
  state_ = State::holding;
  agents_[0].line->send(MessageKind::hold, encode(order));
}

void RemoteGroup::begin(const std::string& rendezvous) {
  state_ = State::begun;
  StartOrder order;
  order.folder = std::filesystem::current_path().string();
  order.own_program = options_.own_program;
  order.plan = plan_;
  order.plan.rendezvous = rendezvous;
  for (std::size_t host = 0; host < agents_.size(); ++host) {
    order.plan.first_rank = agents_[host].first_rank;
    order.plan.workers = options_.hosts[host].workers;
    agents_[host].line->send(MessageKind::start, encode(order));
  }
}

// The end of ssh is that of the host: nobody else can say what its workers do.
void RemoteGroup::look_for_end(std::size_t host) {
  Agent& agent = agents_[host];
  if (!agent.end) agent.end = ways_.reap(static_cast<int>(host));
  if (!agent.end && !agent.line->closed()) return;
  agent.closed_at = std::min(agent.closed_at, clock_.now());
  if (agent.line->readable()) {  // what it said before
    more_to_take_ = true;
    return;
  }
  if (agent.end || clock_.now() >= agent.closed_at + kEndOfSsh) give_up(host, why_it_ended(host));
}

std::string RemoteGroup::why_it_ended(std::size_t host) const {
  const Agent& agent = agents_[host];
  std::string out = "the connection was closed";
  const std::string way = command(options_.hosts[host]).front();
  if (agent.end && agent.end->signal != 0)
    out = fmt::format("{} was killed by SIG{}", way, sigabbrev_np(agent.end->signal));
  else if (agent.end && agent.end->code != 0)
    out = fmt::format("{} ended with code {}", way, agent.end->code);
  const std::string errors = agent.line->errors(), first = agent.line->said_first();
  if (!errors.empty()) out += ": " + errors;
  if (!agent.line->version() && !first.empty()) out += fmt::format(" (it said '{}')", first);
  if (agent.end && agent.end->code == 127 && !agent.line->version())
    out += fmt::format("; is Skein at {} there? Expected --remote-skein PATH", options_.program);
  return out;
}

std::string RemoteGroup::no_answer(std::size_t host) const {
  const AgentLine& line = *agents_[host].line;
  std::string out = fmt::format("no answer of an agent within {} s",
                                static_cast<double>(options_.patience.count()) / 1000);
  if (!line.errors().empty()) out += ": " + line.errors();
  if (!line.version() && !line.said_first().empty())
    out += fmt::format(" (it said '{}')", line.said_first());
  return out;
}

void RemoteGroup::give_up(std::size_t host, const std::string& why) {
  Agent& agent = agents_[host];
  agent.gone = true;
  ways_.kill_one(static_cast<int>(host));
  if (!has_living(host)) return;
  if (state_ != State::begun) throw HostError(name(host), why);
  WorkerEnd lost;
  lost.lost = why;
  for (int rank = 0; rank < plan_.size; ++rank)
    if (worker(rank).host == host && !worker(rank).ended) end(rank, lost);
}

void RemoteGroup::end(int rank, const WorkerEnd& end) {
  Worker& ended = worker(rank);
  if (ended.ended) return;
  ended.ended = true;
  ended.end = end;
  ended.stopped = false;
  ended.output = FileDescriptor();
  ended.error = FileDescriptor();
}

bool RemoteGroup::has_living(std::size_t host) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const Worker& each) { return each.host == host && !each.ended; });
}

std::optional<WorkerEnd> RemoteGroup::reap(int rank) {
  Worker& ended = worker(rank);
  if (!ended.ended || ended.reaped) return std::nullopt;
  ended.reaped = true;
  return ended.end;
}

void RemoteGroup::report_often() {
  for (const Agent& agent : agents_)
    if (!agent.gone && state_ == State::begun) agent.line->send(MessageKind::report_often);
}

void RemoteGroup::signal(int number) {
  if (number == SIGKILL) kill_limit_ = std::min(kill_limit_, clock_.now() + kKillLimit);
  if (state_ != State::begun && ends_a_process(number)) {
    WorkerEnd by;
    by.signal = number;
    for (int rank = 0; rank < plan_.size; ++rank) end(rank, by);
    return;
  }
  for (std::size_t host = 0; host < agents_.size(); ++host)
    if (!agents_[host].gone && has_living(host))
      agents_[host].line->send(MessageKind::signal, encode_number(number));
}

void RemoteGroup::kill_one(int rank) {
  if (state_ == State::begun)
    agents_[worker(rank).host].line->send(MessageKind::kill_one, encode_number(rank));
}

}  // namespace skein
