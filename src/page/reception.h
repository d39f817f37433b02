// Takes in what clients ask, however slowly they say it.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"

namespace skein {

// Holds connections until the head of an HTTP request is whole. One thread reads all of them, so
// a slow client keeps no other one waiting. A client is hung up on when its head is not whole
// after `patience`, or is longer than kMostBytes, or when kMostClients others have come since.
class Reception {
 public:
  static constexpr std::size_t kMostBytes = 16 << 10, kMostClients = 64;

  // The connection, and what was read of it: a whole head, perhaps more. Called from the thread.
  using WhenWhole = std::function<void(FileDescriptor client, std::string head)>;

  Reception(WhenWhole when_whole, std::chrono::milliseconds patience);
  ~Reception();  // hangs up on those whose head is not whole
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  void admit(FileDescriptor client);  // thread-safe

 private:
  struct Client {
    FileDescriptor socket;
    Time until;
    std::string head;
  };
  enum class Heard { part, whole, too_much_or_end };

  void work();
  bool take_in_new();  // false: it is over
  std::chrono::milliseconds next_deadline() const;
  static Heard listen_to(Client& client);

  const WhenWhole when_whole_;
  const std::chrono::milliseconds patience_;
  FileDescriptor wake_;
  std::list<Client> clients_;  // of the thread; who came first is first

  std::mutex mutex_;
  std::vector<FileDescriptor> new_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein
