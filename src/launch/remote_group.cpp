#include "launch/remote_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "launch/shell.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr auto kKillLimit = 2s;      // from SIGKILL to the news that all have ended
constexpr auto kLastWords = 3000ms;  // for agents to end when the run is over

// The rest of the scope is without the lock.
class Unlocked {
 public:
  explicit Unlocked(std::mutex& mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::mutex& mutex_;
};

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
  stop_pulsing();
  for (HostLink& link : links_) link.finish();
  const Time until = clock_.now() + kLastWords;
  for (HostLink& link : links_)
    while (!link.given_up() && !link.has_ended(clock_.now()) && clock_.now() < until) {
      std::vector<pollfd> watched;
      link.watch(watched);
      poll(watched.data(), watched.size(), 50);
      try {
        link.line().advance();
        while (link.line().next()) {
        }
      } catch (const Error&) {
        link.give_up();  // it would not end by itself
      }
    }
}

void RemoteGroup::start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) {
  Worker& told = worker(rank);
  told.output = copy_for_writing(streams.output);
  told.to_output = Outbox(told.output.get());
  if (streams.error != streams.output) told.error = copy_for_writing(streams.error);
  if (told.error.valid()) told.to_error = Outbox(told.error.get());
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
  links_.reserve(options_.hosts.size());
  int rank = 0;
  for (const Host& host : options_.hosts)
    links_.emplace_back(host, std::exchange(rank, rank + host.workers), command(host), ways_,
                        signal_mask, options_.silence, clock_.now());
  pulses_ = std::thread([this] { keep_pulsing(); });
}

void RemoteGroup::keep_pulsing() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (!suspended_)
      for (HostLink& link : links_)
        if (!link.given_up()) link.pulse(clock_.now(), options_.silence);
    changed_.wait_for(lock, options_.silence / 6);
  }
}

void RemoteGroup::stop_pulsing() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (pulses_.joinable()) pulses_.join();
}

int RemoteGroup::alive() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [](const Worker& worker) { return !worker.reaped; }));
}

void RemoteGroup::watch(std::vector<pollfd>& watched) const {
  const std::lock_guard lock(mutex_);
  for (const HostLink& link : links_)
    if (!link.given_up()) link.watch(watched);
  for (const Worker& worker : workers_)
    for (const Outbox* to : {&worker.to_output, &worker.to_error})
      if (to->size() > 0) watched.push_back({to->descriptor(), POLLOUT, 0});
}

Time RemoteGroup::next_turn() const {
  const std::lock_guard lock(mutex_);
  if (more_to_take_) return Time();
  Time out = std::min(state_ == State::begun ? kNever : begin_limit_, kill_limit_);
  for (const HostLink& link : links_)
    if (!link.given_up())
      out =
          std::min({out, held_up(link) ? kNever : link.next_look(), link.keepalive().next_look()});
  return out;
}

void RemoteGroup::advance() {
  const std::lock_guard lock(mutex_);
  more_to_take_ = false;
  for (HostLink& link : links_)
    if (!link.given_up()) advance(link);
  if (state_ == State::greeting) meet();
  const Time now = clock_.now();
  for (HostLink& link : links_) {
    if (link.given_up()) continue;
    const bool silent = !link.greeted() || (state_ == State::holding && link.has_rank(0));
    if (state_ != State::begun && now >= begin_limit_ && silent)
      give_up(link, link.no_answer(options_.patience));
    else if (now >= kill_limit_ && has_living(link))
      give_up(link, "it does not say whether its workers have ended");
    else if (link.silent(now) && has_living(link))
      give_up(link,
              fmt::format("nothing has come from it for {} s: it is stopped, or has no power, "
                          "or no network leads there",
                          seconds(link.keepalive().limit())));
    else
      link.pulse(now, options_.silence);
  }
}

void RemoteGroup::advance(HostLink& link) {
  try {
    link.line().advance();
    link.check_version();
    if (print_rest(link)) take_messages(link);
  } catch (const IoError& error) {
    return give_up(link, error.what());
  }
  // The end of ssh is that of the host: nobody else can say what its workers do.
  if (!link.has_ended(clock_.now()) || more_to_take_ || held_up(link)) return;
  if (link.line().readable())  // what it said before
    more_to_take_ = true;
  else
    give_up(link, link.why_it_ended());
}

// One message of output at a time: it goes to a pipe that this thread has to empty.
void RemoteGroup::take_messages(HostLink& link) {
  while (auto message = link.line().next()) {
    take(link, *message);
    if (message->kind != MessageKind::output) continue;
    if (!held_up(link)) more_to_take_ = true;
    return;
  }
}

void RemoteGroup::take(HostLink& link, const Message& message) {
  switch (message.kind) {
    case MessageKind::held:
      if (state_ != State::holding || !link.has_rank(0))
        throw IoError("it holds a port without being asked");
      return begin(join_host_port(
          options_.rendezvous.empty() ? options_.hosts[0].address() : options_.rendezvous,
          decode_number(message.body)));
    case MessageKind::refused:
      throw ConfigError(fmt::format("host {}: {}", link.host().name, message.body));
    case MessageKind::started:
    case MessageKind::alive:
      return;
    case MessageKind::output: {
      const Output output = decode_output(message.body);
      checked(link, output.rank);
      return print(output);
    }
    case MessageKind::record: {
      RecordNews news = decode_record(message.body, clock_.now());
      Worker& told = worker(checked(link, news.rank));
      told.record = std::move(news.record);
      told.stopped = news.stopped;
      return;
    }
    case MessageKind::ended: {
      const EndNews news = decode_end(message.body);
      end(checked(link, news.rank), news.end);
      if (!has_living(link)) link.finish();
      return;
    }
    default:
      throw IoError("it sent what only launchers send");
  }
}

int RemoteGroup::checked(const HostLink& link, int rank) const {
  if (!link.has_rank(rank) || state_ != State::begun)
    throw IoError(fmt::format("it told of rank {}, which is not one of its own", rank));
  return rank;
}

void RemoteGroup::print(const Output& output) {
  Worker& from = worker(output.rank);
  if (from.ended) return;
  Outbox& to = output.error && from.error.valid() ? from.to_error : from.to_output;
  to.add(output.bytes);
  flush(to);
}

// A write to a file may take as long as its server does.
void RemoteGroup::flush(Outbox& to) {
  const Unlocked unlocked(mutex_);
  to.flush();
}

// False while somebody does not take what workers of that host have printed.
bool RemoteGroup::print_rest(const HostLink& link) {
  const bool drop = kill_limit_ != kNever;  // else they would never be heard to have ended
  for (int rank = link.first_rank(); link.has_rank(rank); ++rank)
    for (Outbox* to : {&worker(rank).to_output, &worker(rank).to_error}) {
      if (to->size() > 0) flush(*to);
      if (drop) to->clear();
    }
  return !held_up(link);
}

bool RemoteGroup::held_up(const HostLink& link) const {
  for (int rank = link.first_rank(); link.has_rank(rank); ++rank)
    if (worker(rank).to_output.size() + worker(rank).to_error.size() > 0) return true;
  return false;
}

// When all have greeted, the first one keeps a port for rank 0, unless the user has chosen one.
void RemoteGroup::meet() {
  for (const HostLink& link : links_)
    if (!link.greeted()) return;
  if (has_port(options_.rendezvous)) return begin(options_.rendezvous);
  HoldOrder order;
  order.host = options_.rendezvous.empty() ? options_.hosts[0].address() : options_.rendezvous;
  // What only one host means by its name will do when all are that host.
  order.loopback_will_do =
      std::all_of(options_.hosts.begin(), options_.hosts.end(),
                  [](const Host& host) { return names_loopback(host.address()); }) ||
      options_.hosts.size() == 1;
  state_ = State::holding;
  links_[0].line().send(MessageKind::hold, encode(order));
}

void RemoteGroup::begin(const std::string& rendezvous) {
  state_ = State::begun;
  StartOrder order;
  order.folder = std::filesystem::current_path().string();
  order.own_program = options_.own_program;
  order.plan = plan_;
  order.plan.rendezvous = rendezvous;
  for (HostLink& link : links_) {
    order.plan.first_rank = link.first_rank();
    order.plan.workers = link.host().workers;
    link.line().send(MessageKind::start, encode(order));
  }
}

void RemoteGroup::give_up(HostLink& link, const std::string& why) {
  link.give_up();
  if (!has_living(link)) return;
  if (state_ != State::begun) throw HostError(link.host().name, why);
  WorkerEnd lost;
  lost.lost = why;
  for (int rank = 0; rank < plan_.size; ++rank)
    if (link.has_rank(rank)) end(rank, lost);
}

void RemoteGroup::end(int rank, const WorkerEnd& end) {
  Worker& ended = worker(rank);
  if (ended.ended) return;
  ended.ended = true;
  ended.end = end;
  ended.stopped = false;
  ended.to_output = ended.to_error = Outbox();
  const Unlocked unlocked(mutex_);  // network file systems write when a file is closed
  ended.output = FileDescriptor();
  ended.error = FileDescriptor();
}

bool RemoteGroup::has_living(const HostLink& link) const {
  for (int rank = 0; rank < plan_.size; ++rank)
    if (link.has_rank(rank) && !worker(rank).ended) return true;
  return false;
}

std::optional<WorkerEnd> RemoteGroup::reap(int rank) {
  Worker& ended = worker(rank);
  if (!ended.ended || ended.reaped) return std::nullopt;
  ended.reaped = true;
  return ended.end;
}

void RemoteGroup::report_often() {
  const std::lock_guard lock(mutex_);
  for (HostLink& link : links_)
    if (!link.given_up() && state_ == State::begun) link.line().send(MessageKind::report_often);
}

void RemoteGroup::signal(int number) {
  const std::lock_guard lock(mutex_);
  // While this process is suspended nothing comes from it, which is no reason to end anything.
  if (number == SIGSTOP || number == SIGCONT) {
    suspended_ = number == SIGSTOP;
    for (HostLink& link : links_)
      if (!link.given_up()) link.announce(suspended_ ? options_.suspended : options_.silence);
  }
  if (number == SIGKILL) kill_limit_ = std::min(kill_limit_, clock_.now() + kKillLimit);
  if (state_ != State::begun && ends_a_process(number)) {
    WorkerEnd by;
    by.signal = number;
    for (int rank = 0; rank < plan_.size; ++rank) end(rank, by);
    return;
  }
  for (HostLink& link : links_)
    if (!link.given_up() && has_living(link))
      link.line().send(MessageKind::signal, encode_number(number));
}

void RemoteGroup::kill_one(int rank) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::begun)
    links_[worker(rank).host].line().send(MessageKind::kill_one, encode_number(rank));
}

}  // namespace skein
