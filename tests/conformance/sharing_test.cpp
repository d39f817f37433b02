// Memory of a device among processes, by itself: what fabrics of one host are made on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/toy_sharing.h"

namespace skein::toy {
namespace {

using namespace std::chrono_literals;

// What two processes see of each other, beside the memory of the device.
struct Board {
  alignas(4096) SharedCount owner;
  alignas(4096) SharedCount reader;
  alignas(4096) std::atomic<int> step;
  SharedBlock block;
  std::uint64_t offset;
};

void until(const std::atomic<int>& step, int value) {
  while (step.load() < value) std::this_thread::sleep_for(1ms);
}

class SharingOf : public testing::Test {
 protected:
  SharingOf()
      : board_(static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharingOf() override { ::munmap(board_, sizeof(Board)); }

  // Runs `owner` in a process of its own, and `reader` in another; both must end well, but for an
  // owner that is killed.
  void run(const std::function<void(Board&)>& owner, const std::function<void(Board&)>& reader,
           bool owner_dies = false) {
    const pid_t first = start(owner), second = start(reader);
    int status = 0;
    ::waitpid(second, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the reader";
    ::waitpid(first, &status, 0);
    if (owner_dies)
      EXPECT_TRUE(WIFSIGNALED(status));
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the owner";
  }

 private:
  pid_t start(const std::function<void(Board&)>& body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    try {
      body(*board_);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }

  Board* board_;
};

constexpr std::size_t kCount = 50000;

// The owner's values, filled by its queue, which has yet to come to it when the other is told.
std::unique_ptr<Memory> offer(
    ToyQueue& queue, Board& board, float value,
    const std::function<void()>& first = [] { std::this_thread::sleep_for(50ms); }) {
  auto memory = queue.sharing()->allocate(kCount, Type::f32);
  const OnQueue scope(&queue);
  queue.put(first);
  fill(memory->span(), value);
  const auto place = queue.sharing()->place_of(memory->span());
  board.block = place.value().block;
  board.offset = place->offset;
  return memory;
}

Span at(const Memory& opened, const Board& board) {
  const Span bytes = opened.span().at({board.offset, kCount * sizeof(float)});
  return {bytes.data, kCount, bytes.device, Type::f32};
}

bool all_are(ToyQueue& queue, Span span, float value) {
  const auto copied = queue.allocate(kCount, Type::f32);
  const OnQueue scope(&queue);
  copy(copied->span(), span);
  const auto values = floats_of(copied->span());
  return std::ranges::all_of(values, [=](float each) { return each == value; });
}

TEST_F(SharingOf, APeerReadsWhatTheOwnersQueueWroteBeforeTheCount) {
  run(
      [](Board& board) {
        ToyQueue queue(1);
        queue.sharing()->use(board.owner);
        queue.sharing()->use(board.reader);
        const auto memory = offer(queue, board, 7);
        queue.sharing()->raise(board.owner, 1);
        board.step = 1;
        until(board.step, 2);
        // The next value is written when the peer has read the first, however late that is.
        queue.sharing()->wait_for(board.reader, 1);
        const OnQueue scope(&queue);
        fill(memory->span(), 8);
        queue.sharing()->raise(board.owner, 2);
        board.step = 3;
        until(board.step, 4);
        queue.finish();
      },
      [](Board& board) {
        ToyQueue queue(2);
        queue.sharing()->use(board.owner);
        queue.sharing()->use(board.reader);
        const OnQueue scope(&queue);
        const auto copied = queue.allocate(kCount, Type::f32);
        until(board.step, 1);
        const auto opened = queue.sharing()->open(board.block);
        queue.sharing()->wait_for(board.owner, 1);
        queue.put([] { std::this_thread::sleep_for(50ms); });
        copy(copied->span(), at(*opened, board));
        queue.sharing()->raise(board.reader, 1);
        board.step = 2;
        until(board.step, 3);
        EXPECT_TRUE(all_are(queue, copied->span(), 7));
        queue.sharing()->wait_for(board.owner, 2);
        EXPECT_TRUE(all_are(queue, at(*opened, board), 8));
        board.step = 4;
      });
}

// The toy shows who forgets a wait; otherwise nothing that is tested with it would mean anything.
TEST_F(SharingOf, AWaitThatIsLeftOutIsSeen) {
  run(
      [](Board& board) {
        ToyQueue queue(1);
        queue.sharing()->use(board.owner);
        const auto memory = offer(queue, board, 7, [&] { until(board.step, 2); });
        queue.sharing()->raise(board.owner, 1);
        board.step = 1;
        until(board.step, 2);
        queue.finish();
      },
      [](Board& board) {
        ToyQueue queue(2);
        queue.toy_sharing().wait_for_nothing();
        queue.sharing()->use(board.owner);
        until(board.step, 1);
        const auto opened = queue.sharing()->open(board.block);
        queue.sharing()->wait_for(board.owner, 1);
        EXPECT_FALSE(all_are(queue, at(*opened, board), 7));
        board.step = 2;
      });
}

// Memory that a peer has open stays readable, and whoever waits for the dead one's count is let go
// by anybody.
TEST_F(SharingOf, ADeadOwnerLeavesItsMemoryAndCanBeStoodInFor) {
  run(
      [](Board& board) {
        ToyQueue queue(1);
        queue.sharing()->use(board.owner);
        const auto memory = offer(queue, board, 7);
        queue.finish();
        queue.put([] { std::this_thread::sleep_for(1000s); });
        queue.sharing()->raise(board.owner, 1);
        board.step = 1;
        until(board.step, 2);
        ::kill(::getpid(), SIGKILL);
      },
      [](Board& board) {
        ToyQueue queue(2);
        queue.sharing()->use(board.owner);
        until(board.step, 1);
        const auto opened = queue.sharing()->open(board.block);
        queue.sharing()->wait_for(board.owner, 1);
        const Mark behind = queue.record();
        board.step = 2;
        std::this_thread::sleep_for(300ms);
        EXPECT_FALSE(reached(behind));
        board.owner.store(std::uint64_t{1} << 62);
        EXPECT_TRUE(all_are(queue, at(*opened, board), 7));
      },
      true);
}

TEST_F(SharingOf, MemoryOfNobodyIsAnError) {
  ToyQueue queue(1);
  const auto memory = queue.sharing()->allocate(10, Type::f32),
             other = queue.allocate(10, Type::f32);
  EXPECT_FALSE(queue.sharing()->place_of(other->span()));
  const auto place = queue.sharing()->place_of(memory->span());
  ASSERT_TRUE(place);
  EXPECT_THROW(queue.sharing()->open(place->block), Error);  // its own
  EXPECT_THROW(queue.sharing()->open({}), Error);
}

// What is given back serves again, cleared, in the order of the queue.
TEST_F(SharingOf, MemoryIsUsedAgainAndCleared) {
  ToyQueue queue(1);
  const OnQueue scope(&queue);
  auto first = queue.sharing()->allocate(kCount, Type::f32);
  const void* const where = first->span().data;
  fill(first->span(), 3);
  const auto kept = queue.allocate(kCount, Type::f32);
  copy(kept->span(), first->span());
  first.reset();
  const auto second = queue.sharing()->allocate(kCount, Type::f32);
  EXPECT_EQ(second->span().data, where);
  EXPECT_TRUE(all_are(queue, second->span(), 0));
  EXPECT_TRUE(all_are(queue, kept->span(), 3));
}

}  // namespace
}  // namespace skein::toy
