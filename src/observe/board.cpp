#include "observe/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::uint64_t kMagic = 0x32647261'6f42536bU;  // changes with the layout below

template <std::size_t bytes>
using Text = std::array<std::atomic<std::uint64_t>, bytes / 8>;

// Fields are written with release and read with acquire order. (Fences would do as well, but the
// thread sanitizer knows none.)
struct Fields {
  std::atomic<std::int32_t> pid, phase, waiting_for, failed_in, lost_peer;
  std::atomic<std::int64_t> step, samples, changed, failed_at;
  Text<32> operation;
  Text<512> failure;
};

// Every version of a record is written to the slot after that of the last one, and is there for
// readers when it is whole. So a writer that dies, or is stopped, half way has changed nothing, and
// a reader is disturbed only if kSlots - 1 versions follow each other while it copies one.
constexpr std::uint64_t kSlots = 8;
struct alignas(64) SharedRecord {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> writer;  // the turn of the thread that writes; even: nobody does
  std::array<Fields, kSlots> slots;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct alignas(64) Header {
  std::uint64_t magic;
  std::int64_t size;
};

std::size_t bytes_for(std::int64_t size) {
  return sizeof(Header) + static_cast<std::size_t>(size) * sizeof(SharedRecord);
}

template <typename T, typename U>
void put(std::atomic<T>& field, U value) {
  field.store(static_cast<T>(value), std::memory_order_release);
}

template <typename T>
T get(const std::atomic<T>& field) {
  return field.load(std::memory_order_acquire);
}

template <typename Words>
void put_text(Words& words, std::string_view text) {
  std::array<char, sizeof(Words)> bytes{};
  std::copy_n(text.data(), std::min(text.size(), bytes.size() - 1), bytes.data());
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i * 8, 8);
    put(words[i], word);
  }
}

template <typename Words>
std::string get_text(const Words& words) {
  std::array<char, sizeof(Words)> bytes;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = get(words[i]);
    std::memcpy(bytes.data() + i * 8, &word, 8);
  }
  bytes.back() = '\0';
  return bytes.data();
}

template <typename Words>
void copy_words(Words& to, const Words& from) {
  for (std::size_t i = 0; i < to.size(); ++i) put(to[i], get(from[i]));
}

void copy(Fields& to, const Fields& from) {
  put(to.pid, get(from.pid));
  put(to.phase, get(from.phase));
  put(to.waiting_for, get(from.waiting_for));
  put(to.failed_in, get(from.failed_in));
  put(to.lost_peer, get(from.lost_peer));
  put(to.step, get(from.step));
  put(to.samples, get(from.samples));
  put(to.changed, get(from.changed));
  put(to.failed_at, get(from.failed_at));
  copy_words(to.operation, from.operation);
  copy_words(to.failure, from.failure);
}

BoardRecord copy(const Fields& from) {
  BoardRecord out;
  out.pid = get(from.pid);
  out.step = get(from.step);
  out.samples = get(from.samples);
  out.phase = static_cast<Phase>(get(from.phase));
  out.waiting_for = get(from.waiting_for);
  out.operation = get_text(from.operation);
  out.changed = Time(Duration(get(from.changed)));
  out.failure = get_text(from.failure);
  out.failed_in = static_cast<Phase>(get(from.failed_in));
  out.lost_peer = get(from.lost_peer);
  out.failed_at = Time(Duration(get(from.failed_at)));
  return out;
}

// The turn to write a record. Those who want it are the threads of its worker, for well under a
// microsecond each. One that keeps it for kLongest has died with it, as the process did that a
// script has started this one in place of: its turn is over.
class Turn {
 public:
  explicit Turn(SharedRecord& record) : record_(record) {
    std::uint64_t seen = get(record.writer);
    std::optional<std::chrono::steady_clock::time_point> since;
    for (;;) {
      const bool late = since && std::chrono::steady_clock::now() - *since > kLongest;
      if (seen % 2 == 0 || late) {
        number_ = seen + (seen % 2 == 0 ? 1 : 2);
        if (record.writer.compare_exchange_weak(seen, number_, std::memory_order_acq_rel)) return;
        since.reset();
        continue;
      }
      if (!since) since = std::chrono::steady_clock::now();
      sched_yield();
      const std::uint64_t now = get(record.writer);
      if (std::exchange(seen, now) != now) since.reset();
    }
  }
  // Unless another has taken it for dead.
  ~Turn() {
    std::uint64_t mine = number_;
    record_.writer.compare_exchange_strong(mine, number_ + 1, std::memory_order_acq_rel);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLongest{200};

  SharedRecord& record_;
  std::uint64_t number_ = 0;
};

}  // namespace

const char* phase_name(Phase phase) {
  static constexpr std::array names{
      "starting", "loading data", "forward", "backward", "waiting", "update",         "evaluating",
      "saving",   "done",         "failed",  "has left", "flush",   "loading a model"};
  const auto index = static_cast<std::size_t>(phase);
  return index < names.size() ? names[index] : "unknown";
}

struct Board::Memory {
  int descriptor = -1;
  int rank = 0;
  std::int64_t size = 0;  // as first seen: no worker can make another misread the memory
  ClockPointer clock;
  Header* header = nullptr;

  ~Memory() {
    if (header != nullptr) munmap(header, bytes_for(size));
    if (descriptor >= 0) close(descriptor);
  }

  void map(std::int64_t ranks) {
    size = ranks;
    void* address =
        mmap(nullptr, bytes_for(size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED)
      throw Error(
          fmt::format("cannot map the status board of {} workers: {}", size, std::strerror(errno)));
    header = static_cast<Header*>(address);
  }

  SharedRecord& record(int which) const {
    SKEIN_CHECK(which >= 0 && which < size, "rank {} of a board of {}", which, size);
    return reinterpret_cast<SharedRecord*>(header + 1)[which];
  }

  template <typename Change>
  void write(Change&& change) const {
    SharedRecord& mine = record(rank);
    const Time now = clock->now();
    const Turn turn(mine);
    const std::uint64_t version = get(mine.version);
    Fields& next = mine.slots[(version + 1) % kSlots];
    copy(next, mine.slots[version % kSlots]);
    change(next, now);
    put(next.changed, now.time_since_epoch().count());
    put(mine.version, version + 1);
  }
};

Board::Board(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
Board::Board(Board&&) noexcept = default;
Board& Board::operator=(Board&&) noexcept = default;
Board::~Board() = default;

Board Board::create(int size, int rank, ClockPointer clock) {
  SKEIN_CHECK(size > 0 && rank >= 0 && rank < size, "a board of {} for rank {}", size, rank);
  auto memory = std::make_unique<Memory>();
  memory->rank = rank;
  memory->clock = std::move(clock);
  memory->descriptor = memfd_create("skein-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const auto bytes = static_cast<off_t>(bytes_for(size));
  // Sealed: no worker can cut off the memory that the launcher reads.
  if (memory->descriptor < 0 || ftruncate(memory->descriptor, bytes) != 0 ||
      fcntl(memory->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw Error(
        fmt::format("cannot make the status board of {} workers: {}", size, std::strerror(errno)));
  memory->map(size);
  memory->header->magic = kMagic;
  memory->header->size = size;
  // New memory is all zeros, and so is an empty record but for these.
  for (int each = 0; each < size; ++each) {
    put(memory->record(each).slots[0].waiting_for, -1);
    put(memory->record(each).slots[0].lost_peer, -1);
  }
  return Board(std::move(memory));
}

std::optional<Board> Board::inherit(const Getenv& getenv, int rank, ClockPointer clock) {
  const char* text = getenv("SKEIN_BOARD");
  if (text == nullptr || *text == '\0') return std::nullopt;
  int descriptor = -1;
  const char* end = text + std::strlen(text);
  const auto [rest, code] = std::from_chars(text, end, descriptor);
  if (code != std::errc() || rest != end || descriptor < 0)
    throw ConfigError(fmt::format(
        "SKEIN_BOARD={}: expected the number of a file descriptor, as skein run sets it", text));

  Header header{};
  struct stat status {};
  if (pread(descriptor, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)) ||
      header.magic != kMagic || header.size <= rank || rank < 0 ||
      fstat(descriptor, &status) != 0 || header.size > status.st_size ||
      status.st_size != static_cast<off_t>(bytes_for(header.size)))
    return std::nullopt;

  auto memory = std::make_unique<Memory>();
  // A copy: the launcher's number stays open for whoever else in this process inherits the board.
  memory->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (memory->descriptor < 0) return std::nullopt;
  memory->rank = rank;
  memory->clock = std::move(clock);
  memory->map(header.size);
  Board board(std::move(memory));
  board.sign_in();
  return board;
}

Board Board::join(const Getenv& getenv, int rank, int size) {
  if (auto board = inherit(getenv, rank)) return std::move(*board);
  Board board = create(size, rank);
  board.sign_in();
  return board;
}

int Board::size() const { return static_cast<int>(memory_->size); }
int Board::descriptor() const { return memory_->descriptor; }

BoardRecord Board::read(int rank) const {
  const SharedRecord& record = memory_->record(rank);
  // A slot is written again when kSlots - 1 more versions are there. Who has read a value of that
  // later write sees those versions too.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (;;) {
    const std::uint64_t version = get(record.version);
    BoardRecord out = copy(record.slots[version % kSlots]);
    if (get(record.version) - version < kSlots - 1) return out;
    // Only memory that a worker has spoilt can look like this for so long.
    if (std::chrono::steady_clock::now() > until) return out;
    sched_yield();
  }
}

void Board::sign_in() {
  memory_->write([](Fields& mine, Time) {
    put(mine.pid, getpid());
    if (static_cast<Phase>(get(mine.phase)) == Phase::left) put(mine.phase, Phase::starting);
  });
}

void Board::set_step(std::int64_t step, std::int64_t samples) {
  memory_->write([&](Fields& mine, Time) {
    put(mine.step, step);
    put(mine.samples, samples);
  });
}

Phase Board::set_phase(Phase phase) {
  auto before = Phase::starting;
  memory_->write([&](Fields& mine, Time) {
    before = static_cast<Phase>(get(mine.phase));
    if (before != Phase::failed) put(mine.phase, phase);
  });
  return before;
}

void Board::set_waiting(int peer, std::string_view operation) {
  memory_->write([&](Fields& mine, Time) {
    if (static_cast<Phase>(get(mine.phase)) == Phase::failed) return;
    put(mine.waiting_for, peer);
    put_text(mine.operation, operation);
  });
}

void Board::clear_waiting() { set_waiting(-1, {}); }

void Board::fail(std::string_view message, int lost_peer) {
  memory_->write([&](Fields& mine, Time now) {
    if (static_cast<Phase>(get(mine.phase)) == Phase::failed) return;
    put(mine.failed_in, get(mine.phase));
    put(mine.phase, Phase::failed);
    put(mine.lost_peer, lost_peer);
    put(mine.failed_at, now.time_since_epoch().count());
    put_text(mine.failure, message);
  });
}

void Board::lose(int peer) {
  memory_->write([&](Fields& mine, Time) {
    if (static_cast<Phase>(get(mine.phase)) != Phase::failed) put(mine.lost_peer, peer);
  });
}

void Board::leave() {
  memory_->write([&](Fields& mine, Time now) {
    const auto phase = static_cast<Phase>(get(mine.phase));
    if (phase == Phase::failed || phase == Phase::done || phase == Phase::left) return;
    put(mine.failed_in, phase);
    put(mine.phase, Phase::left);
    put(mine.failed_at, now.time_since_epoch().count());
  });
}

}  // namespace skein
