// What is used of NCCL, as a table of its functions: the library's own, or a stand-in's.
//
// Types and numbers are those of nccl.h, of which nothing is included: the library is looked for
// when a program runs (nccl/library.h), so that one build runs with it and without.
#pragma once

#include <cstddef>
#include <memory>

#include "core/queue.h"

namespace skein::nccl {

struct Opaque;
using Comm = Opaque*;  // ncclComm_t
using Stream = void*;  // cudaStream_t

// By which the ranks of a communicator find each other.
struct UniqueId {
  char bytes[128];
};

// Those that are told apart; all others are errors.
enum class Result : int { success = 0, system_error = 2, invalid_usage = 5, in_progress = 7 };

enum class DataType : int { byte = 1, f32 = 7, bf16 = 9 };
inline constexpr int kSum = 0;

// ncclConfig_t as of 2.14, the first that does not block: later versions take it too.
inline constexpr int kLeastVersion = 21400;
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kLeastVersion;
  int blocking = 0;
};

struct Api {
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init_rank_config)(Comm*, int ranks, UniqueId, int rank, Config*);
  Result (*comm_get_async_error)(Comm, Result*);
  Result (*comm_finalize)(Comm);
  Result (*comm_destroy)(Comm);
  Result (*comm_abort)(Comm);
  const char* (*get_error_string)(Result);
  const char* (*get_last_error)(Comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*reduce)(const void* from, void* to, std::size_t count, DataType, int op, int root, Comm,
                   Stream);
  Result (*broadcast)(const void* from, void* to, std::size_t count, DataType, int root, Comm,
                      Stream);
  Result (*reduce_scatter)(const void* from, void* to, std::size_t each, DataType, int op, Comm,
                           Stream);
  Result (*all_gather)(const void* from, void* to, std::size_t each, DataType, Comm, Stream);
  Result (*send)(const void* from, std::size_t count, DataType, int peer, Comm, Stream);
  Result (*recv)(void* to, std::size_t count, DataType, int peer, Comm, Stream);

  // The stream of a queue, and what makes a device the calling thread's for as long as it lives.
  Stream (*stream_of)(Queue&);
  std::shared_ptr<void> (*on_device)(int index);
};

}  // namespace skein::nccl
