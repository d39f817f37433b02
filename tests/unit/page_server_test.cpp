// How the page's server bears clients that are slow, silent or endless, before any token is shown.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "multiproc/http.h"
#include "multiproc/process.h"
#include "page/reception.h"
#include "page/server.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::ask;
using testing::eventually;
using testing::Folder;
using testing::PageUrl;
using testing::status_of;

constexpr auto kLong = 600s;  // more than a busy machine needs

struct Pair {
  FileDescriptor near, far;
};
Pair connected_pair() {
  int both[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both), 0);
  return {FileDescriptor(both[0]), FileDescriptor(both[1])};
}

bool say(const FileDescriptor& socket, const std::string& text) {
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

bool hung_up_on(const FileDescriptor& socket) {
  pollfd ready{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kLong).count())) == 1 &&
         ::recv(socket.get(), &byte, 1, 0) <= 0;
}

FileDescriptor connected_to(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

void nobody_is_whole(const FileDescriptor&, const std::string& head) {
  ADD_FAILURE() << "taken for a whole head: " << head;
}

TEST(PageReception, AHeadThatComesInPiecesIsGivenWhole) {
  std::promise<std::string> whole;
  Reception reception([&](const FileDescriptor&, std::string head) { whole.set_value(head); },
                      kLong);
  Pair pair = connected_pair();
  reception.admit(std::move(pair.far));
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char letter : head) {
    ASSERT_TRUE(say(pair.near, {letter}));
    std::this_thread::yield();
  }
  auto given = whole.get_future();
  ASSERT_EQ(given.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(given.get(), head);
}

TEST(PageReception, WhoSaysNothingOrTooMuchIsHungUpOn) {
  Reception impatient(nobody_is_whole, 20ms), patient(nobody_is_whole, 1h);
  Pair silent = connected_pair(), endless = connected_pair();
  impatient.admit(std::move(silent.far));
  EXPECT_TRUE(hung_up_on(silent.near));
  patient.admit(std::move(endless.far));
  for (std::size_t sent = 0; sent < 2 * Reception::kMostBytes; sent += 1000)
    if (!say(endless.near, std::string(1000, 'x'))) break;
  EXPECT_TRUE(hung_up_on(endless.near));
}

TEST(PageReception, OfTooManyClientsTheOldestGoes) {
  Reception reception(nobody_is_whole, 1h);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i <= Reception::kMostClients; ++i) {
    pairs.push_back(connected_pair());
    reception.admit(std::move(pairs.back().far));
  }
  EXPECT_TRUE(hung_up_on(pairs.front().near));
  EXPECT_TRUE(say(pairs[1].near, "GET"));
}

// Clients that send a byte now and then, and never a whole request.
class Drippers {
 public:
  Drippers(int port, int count) : thread_([this, port, count] { drip(port, count); }) {}
  ~Drippers() { end(); }
  void end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int rounds() const { return rounds_; }

 private:
  void drip(int port, int count) {
    std::vector<FileDescriptor> clients;
    for (int i = 0; i < count; ++i) {
      clients.push_back(connected_to(port));
      say(clients.back(), "GET / HTTP/1.1\r\nX-Slow: ");
    }
    for (; !over_; ++rounds_) {
      for (const FileDescriptor& client : clients) say(client, "x");
      std::this_thread::sleep_for(100ms);
    }
  }

  std::atomic<bool> over_ = false;
  std::atomic<int> rounds_ = 0;
  std::thread thread_;
};

class PageServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_page().empty()) GTEST_SKIP() << why_no_page();
    server_ = std::make_unique<PageServer>("--page", PageAddress{"127.0.0.1", 0}, folder_.path());
    url_ = PageUrl::in(server_->url() + "\n");
  }
  // Whether the server's threads end while clients do what they do.
  bool ends() {
    auto end = std::async(std::launch::async, [this] { server_.reset(); });
    const bool ended = end.wait_for(kLong) == std::future_status::ready;
    if (!ended) give_up_();
    return ended;
  }

  const Folder folder_;
  std::unique_ptr<PageServer> server_;
  PageUrl url_;
  std::function<void()> give_up_ = [] {};  // so that a test that has failed can end
};

TEST_F(PageServerTest, ClientsThatDripKeepNobodyWaitingAndCannotKeepItFromEnding) {
  Drippers drippers(url_.port, 20);
  give_up_ = [&] { drippers.end(); };
  ASSERT_TRUE(eventually([&] { return drippers.rounds() >= 2; }, kLong));
  EXPECT_EQ(status_of(ask(url_.port, "GET /api/state?token=" + url_.token)), 200);
  EXPECT_EQ(status_of(ask(url_.port, "GET /api/state")), 401);
  EXPECT_TRUE(ends());
}

TEST_F(PageServerTest, ALineWithoutEndIsHungUpOn) {
  const FileDescriptor client = connected_to(url_.port);
  say(client, "GET / HTTP/1.1\r\nX-Long: ");
  const std::string piece(1 << 16, 'x');
  int pieces = 0;
  constexpr int kMany = 1024;
  while (pieces < kMany && say(client, piece)) ++pieces;
  EXPECT_LT(pieces, kMany) << "it takes whatever comes";
  EXPECT_EQ(status_of(ask(url_.port, "GET /api/state?token=" + url_.token)), 200);
}

// A client that takes none of a long answer holds a thread, but not the end.
TEST_F(PageServerTest, ClientsThatTakeNoAnswerCannotKeepItFromEnding) {
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(connected_to(url_.port));
    const int little = 1024;
    ::setsockopt(clients.back().get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    say(clients.back(), "GET /?token=" + url_.token + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  give_up_ = [&] { clients.clear(); };
  EXPECT_TRUE(ends());
}

}  // namespace
}  // namespace skein
