#include "fabric/tcp/repairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/tcp/errors.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstRepairPause = 5ms, kLongestRepairPause = 500ms;  // between two attempts

}  // namespace

Repairs::Repairs(Loop& loop, Poller& poller, const Tls& tls, const TcpOptions& options, Met met,
                 std::vector<std::unique_ptr<Connection>>& peers)
    : loop_(loop),
      poller_(poller),
      tls_(tls),
      options_(options),
      met_(std::move(met)),
      peers_(peers) {
  met_.door->let_in = [this](const Hello& hello, std::unique_ptr<Talk> talk) {
    keep(loop_.spawn(welcome({hello, std::move(talk)})));
  };
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      connection(peer).on_broken = [this, peer](std::size_t lane) { repair(peer, lane); };
  for (int peer = 0; peer < options_.rank; ++peer)
    connection(peer).on_wanted = [this, peer](std::size_t count) { widen(peer, count); };
}

void Repairs::keep(Job job) {
  std::erase_if(jobs_, [](const ScopedJob& each) { return each->done(); });
  jobs_.emplace_back(std::move(job));
}

void Repairs::repair(int peer, std::size_t lane) {
  if (!met_.addresses[static_cast<std::size_t>(peer)])
    return connection(peer).lose("the connection ended, and nobody knows where it listens");
  if (std::exchange(connection(peer).lane(lane).repairing, true)) return;
  keep(loop_.spawn(peer < options_.rank ? dial(peer, lane) : watch(peer, lane)));
}

void Repairs::widen(int peer, std::size_t count) {
  for (std::size_t lane = connection(peer).lanes(); lane < count; ++lane) repair(peer, lane);
}

void Repairs::begin_anew() {
  jobs_.clear();
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) continue;
    for (std::size_t i = 0; i < connection(peer).lanes(); ++i) {
      Lane& lane = connection(peer).lane(i);
      lane.repairing = false;
      if (!lane.stream && !connection(peer).lost()) repair(peer, i);
    }
  }
}

Task<> Repairs::dial(int peer, std::size_t lane) {
  Connection& connection = this->connection(peer);
  for (Duration pause = kFirstRepairPause; !connection.lost() && !connection.lane(lane).stream;
       pause = std::min(2 * pause, kLongestRepairPause)) {
    try {
      co_await attempt(peer, lane);
      continue;  // it may have been lost again by now
    } catch (const NobodyListens&) {
      connection.lose(fmt::format("its process has ended: nobody listens at {} any more",
                                  address(peer).text()));
    } catch (const Refused& refused) {
      connection.lose(refused.what());
    } catch (const IoError&) {  // until that has lasted too long
    }
    if (!connection.lost()) co_await loop_.sleep_for(pause);
  }
  connection.lane(lane).repairing = false;
}

Task<> Repairs::attempt(int peer, std::size_t lane) {
  const Deadline deadline = loop_.now() + kWelcomeLimit;
  FileDescriptor socket = co_await connect_to(loop_, poller_, address(peer), deadline);
  Talk talk(loop_, std::make_unique<Stream>(poller_, std::move(socket), tls_, Side::connects));
  co_await talk.handshake(deadline);
  Connection& connection = this->connection(peer);
  Hello hello = hello_of(options_);
  hello.run = met_.run;
  hello.lane = static_cast<std::uint8_t>(lane);
  hello.attempt = ++connection.lane(lane).attempts;
  hello.received = connection.received();
  const HelloBytes bytes = encode(hello);
  co_await talk.say(bytes, deadline);
  const std::vector<std::byte> body = co_await talk.hear_answer(Answer::Kind::welcome, deadline);
  if (connection.lost()) co_return;
  connection.attach(connection.lane(lane), talk.release(options_.encrypt), decode_received(body));
}

// The other side connects anew, if it lives.
Task<> Repairs::watch(int peer, std::size_t lane) {
  Connection& connection = this->connection(peer);
  for (Duration pause = kFirstRepairPause; !connection.lost() && !connection.lane(lane).stream;
       pause = std::min(2 * pause, kLongestRepairPause)) {
    try {
      co_await connect_to(loop_, poller_, address(peer), loop_.now() + kWelcomeLimit);
    } catch (const NobodyListens&) {
      connection.lose(fmt::format("its process has ended: nobody listens at {} any more",
                                  address(peer).text()));
    } catch (const IoError&) {  // until that has lasted too long
    }
    if (!connection.lost()) co_await loop_.sleep_for(pause);
  }
  connection.lane(lane).repairing = false;
}

std::string Repairs::objection_to(const Hello& hello) {
  if (hello.protocol != kProtocol || hello.run != met_.run || hello.attempt == 0)
    return "the run there has begun, and all its workers are in it";
  if (hello.rank <= static_cast<std::uint32_t>(options_.rank) || hello.rank >= peers_.size())
    return fmt::format("rank {} does not connect to rank {}", hello.rank, options_.rank);
  Connection& connection = this->connection(static_cast<int>(hello.rank));
  if (connection.lost())
    return fmt::format("rank {} has gone on without rank {}, {}", options_.rank, hello.rank,
                       connection.trouble());
  return "";
}

Task<> Repairs::refuse(Guest guest, std::string why) {
  const auto* text = reinterpret_cast<const std::byte*>(why.data());
  try {
    co_await guest.talk->answer(Answer::Kind::refusal, {text, why.size()},
                                loop_.now() + kWelcomeLimit);
  } catch (const IoError&) {  // it has gone
  }
}

Task<> Repairs::welcome(Guest guest) {
  const Hello hello = guest.hello;
  const std::string objection = objection_to(hello);
  if (!objection.empty()) {
    co_await refuse(std::move(guest), objection);
    co_return;
  }
  const int peer = static_cast<int>(hello.rank);
  Connection& connection = this->connection(peer);
  Lane& lane = connection.lane(hello.lane);
  if (hello.attempt <= lane.attempts) co_return;  // it has tried again since
  lane.attempts = hello.attempt;
  connection.break_off(lane);  // nothing is read from the former stream after this is said
  const std::vector<std::byte> received = encode_received(connection.received());
  bool told = true;
  try {
    co_await guest.talk->answer(Answer::Kind::welcome, received, loop_.now() + kWelcomeLimit);
  } catch (const IoError&) {
    told = false;  // it will come again, if it lives
  }
  if (connection.lost() || hello.attempt != lane.attempts) co_return;
  if (!told) co_return repair(peer, hello.lane);
  try {
    connection.attach(lane, guest.talk->release(options_.encrypt), hello.received);
  } catch (const IoError& error) {
    connection.lose(error.what());
  }
}

}  // namespace skein::tcp
