// Several threads for one pass over a large vector.
//
// How many there are belongs to the process, as its cores do: kernels are plain functions, and
// whoever calls one need not know. Results never depend on the number.
#pragma once

#include <cstddef>

#include "core/span.h"

namespace skein {

// Elements of a piece: 1 MiB of floats. Large enough that handing it out costs nothing beside it,
// small enough that nobody waits long for a thread that was stopped in the middle of one. A
// multiple of a cache line.
inline constexpr std::size_t kThreadPiece = std::size_t{1} << 18;

// Elements that stay in the host's cache from one operation to the next, of several vectors.
inline constexpr std::size_t kCachePiece = std::size_t{1} << 14;

// The most threads that a pass may use, the caller's included; 1 before the first call. Called by
// whoever knows how many workers share the host, after a fork in the process that is to use them.
// Aborts for less than 1.
void set_kernel_threads(int count);
int kernel_threads();

// This process's part of the cores it may use, where `workers` such processes share them: at least
// 1.
int share_of_cores(int workers);

namespace detail {

// One pass that is cut into pieces.
class Pieces {
 public:
  virtual void work_on(std::size_t piece) const = 0;

 protected:
  ~Pieces() = default;
};

void run_on_threads(std::size_t count, const Pieces& pieces);

}  // namespace detail

// Calls work(piece) for each of `count` pieces, once, on this thread and on others that are idle,
// and returns when all are done. Where another pass has the threads already it makes this one
// alone. `work` must not throw, nor call this function.
template <typename Work>
void for_pieces(std::size_t count, const Work& work) {
  if (count <= 1 || kernel_threads() == 1) {
    for (std::size_t piece = 0; piece < count; ++piece) work(piece);
    return;
  }
  struct Call final : detail::Pieces {
    explicit Call(const Work& its_work) : work(its_work) {}
    void work_on(std::size_t piece) const override { work(piece); }
    const Work& work;
  };
  detail::run_on_threads(count, Call(work));
}

// Calls work(Range) for ranges of kThreadPiece elements, the last one shorter, that together are
// [0, count), likewise; on one thread, for the whole at once.
template <typename Work>
void parallel(std::size_t count, const Work& work) {
  if (count <= kThreadPiece || kernel_threads() == 1) return work(Range{0, count});
  for_pieces((count + kThreadPiece - 1) / kThreadPiece, [&](std::size_t piece) {
    const std::size_t begin = piece * kThreadPiece;
    work(Range{begin, count - begin < kThreadPiece ? count - begin : kThreadPiece});
  });
}

// Several kernels that follow each other on the same elements, as one pass over the host's memory:
// calls work(Range) for ranges of `vector` that stay in the cache, likewise. On a device, once for
// the whole.
template <typename Work>
void in_one_pass(Span vector, const Work& work) {
  if (vector.device != Device::cpu) return work(Range{0, vector.count});
  parallel(vector.count, [&](Range piece) {
    for (std::size_t at = piece.offset; at < piece.end(); at += kCachePiece)
      work(Range{at, piece.end() - at < kCachePiece ? piece.end() - at : kCachePiece});
  });
}

}  // namespace skein
