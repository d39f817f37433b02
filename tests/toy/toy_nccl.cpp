#include "toy/toy_nccl.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/kernels.h"
#include "toy/toy_device.h"

namespace skein::toy {
namespace {

using namespace std::chrono_literals;
using nccl::DataType;
using nccl::Result;

constexpr std::size_t kRoom = std::size_t{8} << 20;  // bytes of a message

// One message at a time from one rank to another.
struct Mailbox {
  std::atomic<std::uint64_t> posted, taken;
  std::uint64_t bytes;
  std::uint32_t kind;
  std::byte room[kRoom];
};

// Of one communicator.
struct Ring {
  std::atomic<int> joined;
  Mailbox boxes[kMostNcclRanks][kMostNcclRanks];  // [from][to]
};

struct Hub {
  std::atomic<int> communicators;
  Ring rings[kMostNcclRanks];
};

Hub* hub = nullptr;
int groups = 0;

struct Shared {
  std::atomic<bool> aborted{false}, failed{false};
};

using Work = std::function<void()>;

}  // namespace
}  // namespace skein::toy

// What NCCL's handle stands for here.
struct skein::nccl::Opaque {
  skein::toy::Ring* ring = nullptr;
  int rank = 0, ranks = 1;
  bool never_joins = false;
  std::shared_ptr<skein::toy::Shared> shared = std::make_shared<skein::toy::Shared>();
  std::vector<skein::toy::Work> launched;  // to be put on the queue
  skein::toy::ToyQueue* queue = nullptr;
  int answers_left = 0;
};

namespace skein::toy {
namespace {

using nccl::Comm;

std::size_t size_of(DataType type) {
  return type == DataType::f32 ? 4 : type == DataType::bf16 ? 2 : 1;
}

// What one operation of a communicator does when the queue comes to it.
struct Kernel {
  Ring* ring;
  int rank, ranks;
  std::shared_ptr<Shared> shared;
  std::uint32_t kind;

  template <typename Condition>
  bool wait(Condition condition) const {
    while (!condition()) {
      if (shared->aborted || shared->failed) return false;
      std::this_thread::sleep_for(20us);
    }
    return true;
  }

  void put(int to, const void* from, std::size_t bytes) const {
    Mailbox& box = ring->boxes[rank][to];
    SKEIN_CHECK(bytes <= kRoom, "{} bytes: more than the stand-in for NCCL takes", bytes);
    if (!wait([&] { return box.taken.load() == box.posted.load(); })) return;
    box.bytes = bytes;
    box.kind = kind;
    std::memcpy(box.room, from, bytes);
    box.posted.fetch_add(1);
  }

  // Calls `use` with what came; other operations than this one's are an error.
  template <typename Use>
  void take(int from, std::size_t bytes, Use use) const {
    Mailbox& box = ring->boxes[from][rank];
    if (!wait([&] { return box.posted.load() > box.taken.load(); })) return;
    if (box.bytes != bytes || box.kind != kind) {
      shared->failed = true;
      return;
    }
    use(box.room);
    box.taken.fetch_add(1);
  }

  void copy_from(int from, void* to, std::size_t bytes) const {
    take(from, bytes, [&](const std::byte* room) { std::memcpy(to, room, bytes); });
  }

  // From the highest rank down: an order that no fabric of ours has.
  void sum_all(float* to, std::size_t count) const {
    std::vector<float> sum(count);
    for (int r = ranks - 1; r >= 0; --r) {
      if (r == rank) {
        for (std::size_t i = 0; i < count; ++i) sum[i] += to[i];
        continue;
      }
      take(r, count * 4, [&](const std::byte* room) {
        const auto* const values = reinterpret_cast<const float*>(room);
        for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
      });
    }
    std::memcpy(to, sum.data(), count * 4);
  }
};

enum Kind : std::uint32_t { kReduce = 1, kBroadcast, kReduceScatter, kAllGather, kMessage };

std::byte* bytes_in(const void* at, std::size_t bytes) {
  return static_cast<std::byte*>(inside({const_cast<void*>(at), bytes, kDevice, Type::byte}).data);
}

thread_local Comm grouped = nullptr;

// Sends of a group leave before anything is waited for, as NCCL's channels do.
Result add(Comm comm, nccl::Stream stream, std::uint32_t kind,
           std::function<void(const Kernel&)> work, bool first = false) {
  comm->queue = static_cast<ToyQueue*>(stream);
  grouped = comm;
  Work put = [kernel = Kernel{comm->ring, comm->rank, comm->ranks, comm->shared, kind},
              work = std::move(work)] { work(kernel); };
  comm->launched.insert(first ? comm->launched.begin() : comm->launched.end(), std::move(put));
  return Result::success;
}

Result get_unique_id(nccl::UniqueId* id) {
  SKEIN_CHECK(hub, "no hub was made before the ranks were forked");
  const int number = hub->communicators.fetch_add(1);
  SKEIN_CHECK(number < kMostNcclRanks, "too many communicators");
  std::memcpy(id->bytes, &number, sizeof(number));
  return Result::success;
}

Result comm_init(Comm* comm, int ranks, nccl::UniqueId id, int rank, nccl::Config* config) {
  SKEIN_CHECK(ranks <= kMostNcclRanks, "too many ranks");
  if (config->blocking != 0 || config->magic != 0xcafebeef) return Result::invalid_usage;
  int number = 0;
  std::memcpy(&number, id.bytes, sizeof(number));
  *comm = new nccl::Opaque;
  (*comm)->ring = &hub->rings[number];
  (*comm)->rank = rank;
  (*comm)->ranks = ranks;
  (*comm)->never_joins = nccl_trouble().never_joins;
  if (!(*comm)->never_joins) (*comm)->ring->joined.fetch_add(1);
  return Result::in_progress;
}

Result get_async_error(Comm comm, Result* state) {
  *state = Result::success;
  if (comm->never_joins || comm->ring->joined.load() < comm->ranks) *state = Result::in_progress;
  if (comm->shared->failed) *state = Result::system_error;
  if (*state != Result::success || comm->launched.empty()) return Result::success;
  if (comm->answers_left-- > 0) {
    *state = Result::in_progress;
    return Result::success;
  }
  comm->queue->put([works = std::exchange(comm->launched, {})] {
    for (const Work& work : works) work();
  });
  return Result::success;
}

Result comm_finalize(Comm) { return Result::success; }

Result comm_destroy(Comm comm) {
  delete comm;
  return Result::success;
}

Result comm_abort(Comm comm) {
  comm->shared->aborted = true;
  while (nccl_trouble().abort_hangs) std::this_thread::sleep_for(100ms);
  return Result::success;  // it is not freed: a thread of the test may still look at it
}

const char* get_error_string(Result) { return "unhandled system error"; }
const char* get_last_error(Comm) { return "a link of the toy is down"; }

Result group_start() {
  grouped = nullptr;
  return Result::success;
}

Result group_end() {
  if (!grouped) return Result::success;
  const int number = groups++;
  const NcclTrouble& trouble = nccl_trouble();
  grouped->answers_left = trouble.answers_in_progress;
  if (number == trouble.never_launches) grouped->launched.clear();
  if (trouble.error_after >= 0 && number >= trouble.error_after) grouped->shared->failed = true;
  return Result::in_progress;
}

Result reduce(const void* from, void* to, std::size_t count, DataType type, int op, int root,
              Comm comm, nccl::Stream stream) {
  if (from != to || type != DataType::f32 || op != nccl::kSum) return Result::invalid_usage;
  return add(comm, stream, kReduce, [=](const Kernel& kernel) {
    if (kernel.rank == root)
      kernel.sum_all(reinterpret_cast<float*>(bytes_in(to, count * 4)), count);
    else
      kernel.put(root, bytes_in(from, count * 4), count * 4);
  });
}

Result broadcast(const void* from, void* to, std::size_t count, DataType type, int root, Comm comm,
                 nccl::Stream stream) {
  if (from != to) return Result::invalid_usage;
  const std::size_t bytes = count * size_of(type);
  return add(comm, stream, kBroadcast, [=](const Kernel& kernel) {
    if (kernel.rank != root) return kernel.copy_from(root, bytes_in(to, bytes), bytes);
    for (int r = 0; r < kernel.ranks; ++r)
      if (r != root) kernel.put(r, bytes_in(from, bytes), bytes);
  });
}

Result reduce_scatter(const void* from, void* to, std::size_t each, DataType type, int op,
                      Comm comm, nccl::Stream stream) {
  const std::size_t bytes = each * 4;
  const auto* const begin = static_cast<const std::byte*>(from);
  if (to != begin + bytes * static_cast<std::size_t>(comm->rank) || type != DataType::f32 ||
      op != nccl::kSum)
    return Result::invalid_usage;
  return add(comm, stream, kReduceScatter, [=](const Kernel& kernel) {
    for (int r = 0; r < kernel.ranks; ++r)
      if (r != kernel.rank)
        kernel.put(r, bytes_in(begin + bytes * static_cast<std::size_t>(r), bytes), bytes);
    kernel.sum_all(reinterpret_cast<float*>(bytes_in(to, bytes)), each);
  });
}

Result all_gather(const void* from, void* to, std::size_t each, DataType type, Comm comm,
                  nccl::Stream stream) {
  const std::size_t bytes = each * size_of(type);
  auto* const begin = static_cast<std::byte*>(to);
  if (from != begin + bytes * static_cast<std::size_t>(comm->rank)) return Result::invalid_usage;
  return add(comm, stream, kAllGather, [=](const Kernel& kernel) {
    for (int r = 0; r < kernel.ranks; ++r)
      if (r != kernel.rank) kernel.put(r, bytes_in(from, bytes), bytes);
    for (int r = 0; r < kernel.ranks; ++r)
      if (r != kernel.rank)
        kernel.copy_from(r, bytes_in(begin + bytes * static_cast<std::size_t>(r), bytes), bytes);
  });
}

Result send(const void* from, std::size_t count, DataType type, int peer, Comm comm,
            nccl::Stream stream) {
  const std::size_t bytes = count * size_of(type);
  return add(
      comm, stream, kMessage,
      [=](const Kernel& kernel) { kernel.put(peer, bytes_in(from, bytes), bytes); }, true);
}

Result recv(void* to, std::size_t count, DataType type, int peer, Comm comm, nccl::Stream stream) {
  const std::size_t bytes = count * size_of(type);
  return add(comm, stream, kMessage,
             [=](const Kernel& kernel) { kernel.copy_from(peer, bytes_in(to, bytes), bytes); });
}

nccl::Stream stream_of(Queue& queue) { return &dynamic_cast<ToyQueue&>(queue); }
std::shared_ptr<void> on_device(int) { return nullptr; }

}  // namespace

NcclTrouble& nccl_trouble() {
  static NcclTrouble trouble;
  return trouble;
}

int nccl_groups() { return groups; }

void make_nccl_hub() {
  if (hub) ::munmap(hub, sizeof(Hub));
  void* const memory = ::mmap(nullptr, sizeof(Hub), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SKEIN_CHECK(memory != MAP_FAILED, "no memory");
  hub = static_cast<Hub*>(memory);
}

const nccl::Api& toy_nccl() {
  static const nccl::Api api{
      get_unique_id, comm_init,        get_async_error, comm_finalize, comm_destroy,
      comm_abort,    get_error_string, get_last_error,  group_start,   group_end,
      reduce,        broadcast,        reduce_scatter,  all_gather,    send,
      recv,          stream_of,        on_device};
  return api;
}

}  // namespace skein::toy
