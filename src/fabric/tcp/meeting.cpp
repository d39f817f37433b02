#include "fabric/tcp/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "fabric/tcp/door.h"
#include "fabric/tcp/errors.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAround = 200ms;
constexpr Duration kQuiet = 3s;  // until it is said what is waited for, and between two of these
constexpr Duration kFirstPause = 20ms, kLongestPause = 500ms;  // between two attempts to connect

struct Guest {
  Hello hello;
  std::unique_ptr<Talk> talk;
};

std::string where(const Talk& talk) {
  try {
    return remote_address(talk.socket()).text();
  } catch (const IoError&) {  // it has gone
    return "an address that is gone";
  }
}

class Meeting {
 public:
  Meeting(Loop& loop, Poller& poller, const Tls& tls, const TcpOptions& options)
      : loop_(loop),
        poller_(poller),
        options_(options),
        rendezvous_(parse_host_port(options.rendezvous)),
        tls_(tls),
        deadline_(loop.now() + options.join_timeout),
        next_word_(loop.now() + kQuiet),
        changed_(loop),
        streams_(static_cast<std::size_t>(options.size)) {}

  Task<> run() {
    if (options_.rank == 0)
      co_await host();
    else
      co_await visit();
  }

  Met take();

 private:
  // Rank 0.
  Task<> host();
  void open_at_rendezvous();
  void enrol(Guest guest);
  std::string objection_to(const Guest& guest) const;
  void strike_out_the_gone();
  std::vector<int> missing() const;
  Task<> hand_out_roster();
  Task<> tell_all(std::string why);

  // The others.
  Task<> visit();
  Task<> reach(int peer);
  Task<> attempt(int peer);
  Task<FileDescriptor> connect(int peer);
  Task<> welcome(Guest guest);

  void open_door(FileDescriptor listener);
  std::string trouble_at_the_door() const;
  Hello own_hello() const;
  std::string where_is(int peer) const;
  static Address address_of(const Place& place, const Door& own);
  void say_now_and_then(const std::string& text);
  std::unique_ptr<Stream>& stream(int rank) { return streams_[static_cast<std::size_t>(rank)]; }

  Loop& loop_;
  Poller& poller_;
  const TcpOptions& options_;
  const HostPort rendezvous_;
  const Tls& tls_;
  const Deadline deadline_;
  Time next_word_;
  Signal changed_;
  std::vector<Guest> arrived_;    // that have said hello and wait for an answer
  std::vector<Guest> enrolled_;   // at rank 0, by rank
  std::vector<Guest> unwelcome_;  // at rank 0
  std::string objection_;         // at rank 0: to whom, and why
  std::optional<Roster> roster_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::optional<Address> rank_0_;  // where it was found; a connection that has broken does not tell
  std::unique_ptr<Door> door_;
};

void Meeting::open_door(FileDescriptor listener) {
  door_ = std::make_unique<Door>(loop_, poller_, tls_, std::move(listener),
                                 [this](const Hello& hello, std::unique_ptr<Talk> talk) {
                                   arrived_.push_back({hello, std::move(talk)});
                                   changed_.notify_all();
                                 });
  door_->say = options_.say;
}

std::string Meeting::trouble_at_the_door() const {
  if (!door_ || door_->own_trouble().empty()) return "";
  return fmt::format(" (somebody who came could not be let in: {})", door_->own_trouble());
}

Hello Meeting::own_hello() const {
  Hello hello = hello_of(options_);
  hello.host = door_->address().number();  // interfaces have names of their own on each host
  hello.port = door_->address().port();
  if (roster_) hello.run = roster_->run;
  return hello;
}

void Meeting::say_now_and_then(const std::string& text) {
  if (loop_.now() < next_word_) return;
  next_word_ = loop_.now() + kQuiet;
  options_.say(text);
}

void Meeting::open_at_rendezvous() {
  std::string trouble;
  for (const Address& address : resolve(rendezvous_)) {
    try {
      return open_door(listen_at(address));
    } catch (const IoError& error) {
      trouble = error.what();
    }
  }
  throw IoError(fmt::format("rank 0 opens the run at {}: {}", options_.rendezvous, trouble));
}

Task<> Meeting::host() {
  open_at_rendezvous();
  enrolled_.resize(static_cast<std::size_t>(options_.size));
  for (;;) {
    for (Guest& guest : std::exchange(arrived_, {})) enrol(std::move(guest));
    strike_out_the_gone();
    if (!objection_.empty()) {
      co_await tell_all(objection_);
      throw ConfigError(objection_);
    }
    const std::vector<int> absent = missing();
    if (absent.empty()) break;
    const Time now = loop_.now();
    const std::string strangers =
        door_->turned_away() == 0
            ? ""
            : fmt::format(" ({} connections to {} were turned away: they did not {}; the last: {})",
                          door_->turned_away(), door_->address().text(), tls_.what_strangers_lack(),
                          door_->last_trouble());
    const std::string door = trouble_at_the_door() + strangers;
    if (now >= deadline_) {
      const std::string why = fmt::format("rank {} did not join the run in time at {}{}",
                                          fmt::join(absent, ", "), door_->address().text(), door);
      co_await tell_all(why);
      throw IoError(why, absent.front());
    }
    say_now_and_then(fmt::format("{} of {} workers here, waiting for rank {} at {}{}",
                                 options_.size - static_cast<int>(absent.size()), options_.size,
                                 fmt::join(absent, ", "), door_->address().text(), door));
    co_await changed_.wait(std::min(deadline_, now + kLookAround));
  }
  co_await hand_out_roster();
}

std::string Meeting::objection_to(const Guest& guest) const {
  const Hello& hello = guest.hello;
  const std::string at = where(*guest.talk);
  if (hello.protocol != kProtocol)
    return fmt::format(
        "a worker at {} runs Skein {} (protocol {}), rank 0 runs Skein {} (protocol {}): expected "
        "the same",
        at, hello.version, hello.protocol, SKEIN_VERSION, kProtocol);
  if (hello.size != static_cast<std::uint32_t>(options_.size))
    return fmt::format("rank {} at {} was started for {} workers, rank 0 for {}", hello.rank, at,
                       hello.size, options_.size);
  if (hello.encrypt != options_.encrypt)
    return fmt::format("rank {} at {} has --encrypt {}, rank 0 has {}: expected the same",
                       hello.rank, at, hello.encrypt ? "on" : "off",
                       options_.encrypt ? "on" : "off");
  if (hello.rank == 0) return fmt::format("another worker, at {}, says that it is rank 0", at);
  if (const Guest& other = enrolled_[hello.rank]; other.talk && other.talk->waits())
    return fmt::format("two workers say that they are rank {}: at {} and at {}", hello.rank,
                       where(*other.talk), at);
  return "";
}

void Meeting::enrol(Guest guest) {
  const std::string objection = objection_to(guest);
  if (objection.empty()) {
    enrolled_[guest.hello.rank] = std::move(guest);
    return;
  }
  if (objection_.empty()) objection_ = objection;
  unwelcome_.push_back(std::move(guest));
}

// A worker that has ended may be started again before the run begins.
void Meeting::strike_out_the_gone() {
  for (Guest& guest : enrolled_)
    if (guest.talk && !guest.talk->waits()) guest.talk.reset();
}

std::vector<int> Meeting::missing() const {
  std::vector<int> out;
  for (int rank = 1; rank < options_.size; ++rank)
    if (!enrolled_[static_cast<std::size_t>(rank)].talk) out.push_back(rank);
  return out;
}

Task<> Meeting::hand_out_roster() {
  Roster roster;
  const bool random = ::RAND_bytes(reinterpret_cast<unsigned char*>(roster.run.data()),
                                   static_cast<int>(roster.run.size())) == 1;
  SKEIN_CHECK(random, "no random numbers: {}", tls_error());
  for (const Guest& guest : enrolled_)
    roster.places.push_back({guest.hello.host, guest.hello.port});
  const std::vector<std::byte> body = encode(roster);
  for (int rank = 1; rank < options_.size; ++rank) {
    Talk& talk = *enrolled_[static_cast<std::size_t>(rank)].talk;
    std::string trouble;
    try {
      co_await talk.answer(Answer::Kind::roster, body, deadline_);
    } catch (const IoError& error) {
      trouble = error.what();
    }
    if (!trouble.empty())
      throw IoError(fmt::format("rank {} was lost while the run began: {}", rank, trouble), rank);
    stream(rank) = talk.release(options_.encrypt);
  }
  roster_ = std::move(roster);
}

Met Meeting::take() {
  Met out{std::move(streams_), {}, roster_->run, std::move(door_)};
  out.addresses.resize(out.streams.size());
  for (int peer = 0; peer < options_.size; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    const Place& place = roster_->places[i];
    try {  // rank 0 is where it was found
      if (peer == 0)
        out.addresses[0] = rank_0_;
      else if (out.streams[i])
        out.addresses[i] = address_of(place, *out.door);
    } catch (const IoError&) {  // it has gone, which the run finds out
    }
  }
  return out;
}

Task<> Meeting::tell_all(std::string why) {
  const auto* text = reinterpret_cast<const std::byte*>(why.data());
  std::vector<Talk*> talks;
  for (const Guest& guest : enrolled_) talks.push_back(guest.talk.get());
  for (const Guest& guest : unwelcome_) talks.push_back(guest.talk.get());
  for (Talk* talk : talks) {
    if (!talk) continue;
    try {
      co_await talk->answer(Answer::Kind::refusal, {text, why.size()}, loop_.now() + 1s);
    } catch (const IoError&) {  // it has gone
    }
  }
}

// Link-local addresses of workers are on the link by which this worker has found rank 0, or opened
// the run.
Address Meeting::address_of(const Place& place, const Door& own) {
  Address address = numeric_address(place.host, place.port);
  address.take_interface_of(own.address());
  return address;
}

std::string Meeting::where_is(int peer) const {
  if (peer == 0) return options_.rendezvous;
  const Place& place = roster_->places[static_cast<std::size_t>(peer)];
  return fmt::format("{} port {}", place.host, place.port);
}

Task<FileDescriptor> Meeting::connect(int peer) {
  const Deadline soon = std::min(deadline_, loop_.now() + kWelcomeLimit);
  std::vector<Address> addresses;
  if (peer == 0) {
    addresses = resolve(rendezvous_);
  } else {
    const Place& place = roster_->places[static_cast<std::size_t>(peer)];
    addresses.push_back(address_of(place, *door_));
  }
  std::string trouble;
  for (const Address& address : addresses) {
    try {
      FileDescriptor socket = co_await connect_to(loop_, poller_, address, soon);
      if (peer == 0) rank_0_ = address;
      co_return socket;
    } catch (const IoError& error) {
      trouble = error.what();
    }
  }
  throw IoError(trouble);
}

Task<> Meeting::attempt(int peer) {
  FileDescriptor socket = co_await connect(peer);
  auto talk = std::make_unique<Talk>(
      loop_, std::make_unique<Stream>(poller_, std::move(socket), tls_, Side::connects));
  co_await talk->handshake(std::min(deadline_, loop_.now() + kWelcomeLimit));
  if (!door_) {  // others reach this worker at the address by which it reaches rank 0
    Address own = local_address(talk->socket());
    own.set_port(0);
    open_door(listen_at(own));
  }
  const HelloBytes hello = encode(own_hello());
  co_await talk->say(hello, deadline_);
  const auto kind = peer == 0 ? Answer::Kind::roster : Answer::Kind::welcome;
  const std::vector<std::byte> body = co_await talk->hear_answer(kind, deadline_);
  if (peer == 0) roster_ = decode_roster(body, options_.size);
  stream(peer) = talk->release(options_.encrypt);
  changed_.notify_all();
}

Task<> Meeting::reach(int peer) {
  std::string mistrust;  // what is said to the end once it has happened
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    std::string trouble;
    try {
      co_await attempt(peer);
      co_return;
    } catch (const Refused& refused) {
      throw IoError(fmt::format("rank {} ended the meeting: {}", peer, refused.what()), peer);
    } catch (const NotAuthenticated& error) {
      if (mistrust.empty()) next_word_ = loop_.now();
      mistrust = fmt::format("authentication failed: whoever listens there does not have {} ({})",
                             tls_.what_is_shown(), error.what());
    } catch (const IoError& error) {
      trouble = error.what();
    }
    const std::string text =
        fmt::format("rank {} does not reach rank {} at {}: {}", options_.rank, peer, where_is(peer),
                    mistrust.empty() ? trouble : mistrust);
    if (loop_.now() >= deadline_) throw IoError(text, peer);
    say_now_and_then(text);
    co_await loop_.sleep_until(std::min(deadline_, loop_.now() + pause));
  }
}

Task<> Meeting::welcome(Guest guest) {
  const Hello& hello = guest.hello;
  const bool expected =
      hello.protocol == kProtocol && hello.run == roster_->run && hello.attempt == 0 &&
      hello.rank > static_cast<std::uint32_t>(options_.rank) && hello.rank < streams_.size();
  if (!expected) co_return;  // a worker of another run that has the same proof
  try {
    co_await guest.talk->answer(Answer::Kind::welcome, {}, deadline_);
    streams_[hello.rank] = guest.talk->release(options_.encrypt);
  } catch (const IoError&) {  // it will come again
  }
}

Task<> Meeting::visit() {
  co_await reach(0);
  std::vector<ScopedJob> calls;
  for (int peer = 1; peer < options_.rank; ++peer) calls.emplace_back(loop_.spawn(reach(peer)));
  for (;;) {
    for (Guest& guest : std::exchange(arrived_, {})) co_await welcome(std::move(guest));
    for (const ScopedJob& call : calls)
      if (call->done()) call->rethrow();
    std::vector<int> absent;
    for (int peer = 0; peer < options_.size; ++peer)
      if (peer != options_.rank && !stream(peer)) absent.push_back(peer);
    if (absent.empty()) co_return;
    if (loop_.now() >= deadline_)
      throw IoError(fmt::format("rank {} did not connect to rank {} in time{}",
                                fmt::join(absent, ", "), options_.rank, trouble_at_the_door()),
                    absent.front());
    say_now_and_then(fmt::format("rank {} waits for connections with rank {}", options_.rank,
                                 fmt::join(absent, ", ")));
    co_await changed_.wait(std::min(deadline_, loop_.now() + kLookAround));
  }
}

}  // namespace

Hello hello_of(const TcpOptions& options) {
  Hello hello;
  hello.version = SKEIN_VERSION;
  hello.rank = static_cast<std::uint32_t>(options.rank);
  hello.size = static_cast<std::uint32_t>(options.size);
  hello.encrypt = options.encrypt;
  return hello;
}

Met meet(Loop& loop, Poller& poller, const Tls& tls, const TcpOptions& options) {
  Meeting meeting(loop, poller, tls, options);
  ScopedJob job(loop.spawn(meeting.run()));
  while (!job->done()) {
    const std::uint32_t ticket = poller.poll();
    const bool ran = loop.run_turn([&] { return job->done(); }) > 0;
    if (!ran && !job->done()) poller.wait(ticket, loop.next_timer().value_or(kNever));
  }
  job->rethrow();
  return meeting.take();
}

}  // namespace skein::tcp
