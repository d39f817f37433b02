// How workers meet over TCP: in any order, with strangers at the door, and with others that are not
// of their kind.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "conformance/tcp_meetings.h"
#include "core/rng.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/door.h"
#include "fabric/tcp/meeting.h"
#include "fabric/tcp/talk.h"
#include "runtime/courier.h"
#include "skein/error.h"
#include "tcp_run.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// More than a busy machine needs, and less than the limits of those that are not to come to them.
constexpr Duration kLong = 100s;

FileDescriptor connect_blocking(const TcpRun& run) {
  const Address address = resolve(parse_host_port(run.options(0, 2).rendezvous)).front();
  for (;;) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address.raw(), address.length) == 0) return socket;
    std::this_thread::sleep_for(1ms);
  }
}

Task<> sum_once(Fabric& fabric) {
  float value = 1;
  co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(kLong));
}

TEST(TcpMeeting, TheOrderOfStartingDoesNotMatter) {
  for (const int late : {0, 1, 2}) {
    const TcpRun run;
    std::vector<std::future<End>> ends;
    for (int rank = 0; rank < 3; ++rank)
      if (rank != late) ends.push_back(start(run.options(rank, 3)));
    std::this_thread::sleep_for(300ms);
    ends.push_back(start(run.options(late, 3)));
    for (auto& end : ends) EXPECT_EQ(end.get().error, "") << "late: " << late;
  }
}

TEST(TcpMeeting, NamesWhoDoesNotComeToEverybody) {
  const TcpRun run;
  TcpOptions zero = run.options(0, 3), one = run.options(1, 3);
  zero.join_timeout = 5s;
  auto first = start(zero), second = start(one);
  const End host = first.get(), guest = second.get();
  EXPECT_EQ(host.peer, 2);
  EXPECT_TRUE(has(host.error, "rank 2 did not join")) << host.error;
  EXPECT_TRUE(has(guest.error, "rank 2 did not join")) << guest.error;
  EXPECT_LT(guest.took, kLong) << "rank 0 tells it";
}

TEST(TcpMeeting, SaysWhoIsWaitedForWhenItTakesLong) {
  const TcpRun run;
  TcpOptions zero = run.options(0, 3), one = run.options(1, 3);
  zero.join_timeout = one.join_timeout = 8s;
  auto first = start(zero), second = start(one);
  const End host = first.get();
  second.get();
  ASSERT_FALSE(host.said.empty());
  EXPECT_TRUE(has(host.said.back(), "2 of 3 workers here, waiting for rank 2")) << host.said.back();
}

class OtherSecret {
 public:
  OtherSecret() : place_() {}
  std::string path() const { return place_.secret_file(); }

 private:
  MeetingPlace place_;
};

TEST(TcpMeeting, BothSidesSayThatTheirSecretsDiffer) {
  const TcpRun run;
  const OtherSecret other;
  TcpOptions zero = run.options(0, 2), one = run.options(1, 2);
  zero.join_timeout = one.join_timeout = 4s;
  one.secret_file = other.path();
  auto first = start(zero), second = start(one);
  const End host = first.get(), guest = second.get();
  EXPECT_TRUE(has(host.error, "rank 1 did not join")) << host.error;
  EXPECT_TRUE(has(host.error, "did not know the secret")) << host.error;
  EXPECT_TRUE(has(guest.error, "authentication failed")) << guest.error;
  EXPECT_EQ(guest.peer, 0);
  ASSERT_FALSE(guest.said.empty()) << "it says so at once";
  EXPECT_LT(host.took, kLong);
  EXPECT_LT(guest.took, kLong);
}

// The run goes on without the stranger as if it had not been there.
TEST(TcpMeeting, OneWithAnotherSecretKeepsNobodyOut) {
  const TcpRun run;
  const OtherSecret other;
  TcpOptions stranger = run.options(1, 2);
  stranger.secret_file = other.path();
  stranger.join_timeout = 700ms;
  auto first = start(run.options(0, 2)), wrong = start(stranger);
  std::this_thread::sleep_for(200ms);
  auto second = start(run.options(1, 2));
  EXPECT_EQ(first.get().error, "");
  EXPECT_EQ(second.get().error, "");
  EXPECT_NE(wrong.get().error, "");
}

TEST(TcpMeeting, WorkersOfAnotherKindAreRefusedWithBothSidesNamed) {
  const auto meet_two = [](auto change, const std::string& expected) {
    // Rank 2 is told only if it is there when rank 1 comes, which takes longer on a busy machine.
    for (Duration pause = 100ms;; pause *= 4) {
      const TcpRun run;
      TcpOptions one = run.options(1, 3), two = run.options(2, 3);
      change(one);
      two.join_timeout = 5s + pause;
      auto first = start(run.options(0, 3)), third = start(two);
      std::this_thread::sleep_for(pause);
      auto second = start(one);
      const End host = first.get(), guest = second.get(), other = third.get();
      EXPECT_TRUE(host.config);
      EXPECT_TRUE(has(host.error, expected)) << host.error;
      EXPECT_TRUE(has(guest.error, expected)) << guest.error;
      if (!has(other.error, expected) && pause < 5s) continue;
      EXPECT_TRUE(has(other.error, expected)) << other.error;
      return;
    }
  };
  meet_two([](TcpOptions& one) { one.size = 4; }, "was started for 4 workers, rank 0 for 3");
  meet_two([](TcpOptions& one) { one.encrypt = false; }, "has --encrypt off, rank 0 has on");
  meet_two([](TcpOptions& one) { one.rank = 2; }, "two workers say that they are rank 2");
}

// Says hello as a worker of another version would.
Task<> say_hello(Loop& loop, Poller& poller, const Tls& tls, Address address, Hello hello,
                 std::string& refusal) {
  const Deadline deadline = loop.now() + kLong;
  FileDescriptor socket = co_await connect_to(loop, poller, address, deadline);
  Talk talk(loop, std::make_unique<Stream>(poller, std::move(socket), tls, Side::connects));
  co_await talk.handshake(deadline);
  const HelloBytes bytes = encode(hello);
  co_await talk.say(bytes, deadline);
  try {
    co_await talk.hear_answer(Answer::Kind::roster, deadline);
  } catch (const IoError& error) {
    refusal = error.what();
  }
}

TEST(TcpMeeting, AnotherVersionIsRefusedWithBothSidesNamed) {
  const TcpRun run;
  auto first = start(run.options(0, 2));
  connect_blocking(run);
  const SteadyClock clock;
  Loop loop(clock);
  Poller poller;
  const Tls tls(read_secret(run.options(0, 2).secret_file));
  Hello hello;
  hello.protocol = 99;
  hello.version = "9.8.7";
  std::string refusal;
  const Job job = loop.spawn(
      say_hello(loop, poller, tls, resolve(parse_host_port(run.options(0, 2).rendezvous)).front(),
                hello, refusal));
  while (!job.done()) {
    poller.poll();
    loop.run_ready();
  }
  job.rethrow();
  const End host = first.get();
  for (const std::string& text : {host.error, refusal}) {
    EXPECT_TRUE(has(text, "Skein 9.8.7 (protocol 99)")) << text;
    EXPECT_TRUE(has(text, "rank 0 runs Skein 0.")) << text;
  }
}

// Connections that a stranger keeps open, busy in their own way until they are told to stop.
class Strangers {
 public:
  using Act = std::function<void(int socket, std::size_t number)>;
  Strangers(const TcpRun& run, std::size_t count, Act act)
      : thread_([&run, count, act, this] {
          for (std::size_t i = 0; i < count && !over_; ++i) {
            sockets_.push_back(connect_blocking(run));
            act(sockets_.back().get(), i);
            ++there_;
          }
          for (std::size_t i = count; !over_; ++i) {
            std::this_thread::sleep_for(10ms);
            act(sockets_[i % count].get(), i);
          }
        }) {}
  ~Strangers() {
    over_ = true;
    thread_.join();
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  std::size_t there() const { return there_; }

 private:
  std::atomic<bool> over_{false};
  std::atomic<std::size_t> there_{0};
  std::vector<FileDescriptor> sockets_;
  std::thread thread_;
};

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// However many they are, rank 0 keeps a few.
void expect_to_meet_beside(std::size_t strangers, const Strangers::Act& act) {
  const std::size_t before = open_descriptors();
  const TcpRun run;
  auto first = start(run.options(0, 3));
  const Strangers crowd(run, strangers, act);
  while (crowd.there() < strangers) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // rank 0 comes to the last of them
  EXPECT_LT(open_descriptors(), before + strangers + kMostAtTheDoor + 20);
  auto second = start(run.options(1, 3)), third = start(run.options(2, 3));
  for (auto* each : {&first, &second, &third}) {
    const End end = each->get();
    EXPECT_EQ(end.error, "");
    EXPECT_LT(end.took, kLong);
  }
}

TEST(TcpMeeting, SilentStrangersKeepNobodyOut) {
  expect_to_meet_beside(10, [](int, std::size_t) {});
}

TEST(TcpMeeting, AThousandHalfOpenConnectionsKeepNobodyOut) {
  expect_to_meet_beside(1000, [](int, std::size_t) {});
}

TEST(TcpMeeting, GarbageKeepsNobodyOut) {
  expect_to_meet_beside(50, [](int socket, std::size_t number) {
    Rng rng(number);
    std::vector<char> bytes(rng.below(3000));
    for (char& byte : bytes) byte = static_cast<char>(rng.below(256));
    (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

// The beginning of a TLS record, a byte at a time.
TEST(TcpMeeting, OneThatSendsAByteNowAndThenKeepsNobodyOut) {
  expect_to_meet_beside(5, [](int socket, std::size_t number) {
    const char record[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};
    (void)!::send(socket, &record[number / 5 % sizeof(record)], 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

TEST(TcpMeeting, AWorkerThatDiesBeforeTheRunBeginsCanBeStartedAgain) {
  const TcpRun run;
  TcpOptions one = run.options(1, 3);
  one.join_timeout = 300ms;  // it gives up, and its connection ends
  auto first = start(run.options(0, 3)), second = start(one);
  EXPECT_NE(second.get().error, "");
  auto again = start(run.options(1, 3)), third = start(run.options(2, 3));
  EXPECT_EQ(first.get().error, "");
  EXPECT_EQ(again.get().error, "");
  EXPECT_EQ(third.get().error, "");
}

TEST(TcpMeeting, AnAddressThatIsTakenIsSaid) {
  const TcpRun run;
  const Address address = resolve(parse_host_port(run.options(0, 2).rendezvous)).front();
  const FileDescriptor other = listen_at(address);
  const End host = start(run.options(0, 2)).get();
  EXPECT_TRUE(has(host.error, address.text())) << host.error;
  EXPECT_TRUE(has(host.error, "in use")) << host.error;
}

// One that comes when all are there is told so, and disturbs nobody.
TEST(TcpMeeting, NobodyJoinsARunThatHasBegun) {
  const TcpRun run;
  std::promise<void> over;
  const auto ended = over.get_future().share();
  std::vector<std::future<void>> workers;
  std::atomic<int> here{0};
  for (int rank = 0; rank < 2; ++rank)
    workers.push_back(std::async(std::launch::async, [&, rank] {
      const SteadyClock clock;
      Loop loop(clock);
      const auto fabric = make_tcp_fabric(loop, run.options(rank, 2));
      Courier courier(loop, fabric->events());
      courier.wait(sum_once(*fabric));
      ++here;
      ended.wait();
      courier.wait(sum_once(*fabric));
    }));
  while (here < 2) std::this_thread::sleep_for(1ms);
  const End late = start(run.options(1, 2)).get();
  EXPECT_TRUE(has(late.error, "has begun")) << late.error;
  over.set_value();
  for (auto& worker : workers) worker.get();
}

}  // namespace
}  // namespace skein::tcp
