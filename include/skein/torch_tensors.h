// Tensors of all workers, together.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "skein/workers.h"

namespace skein {

// What all_reduce() makes of the workers' tensors, element by element.
enum class Reduce : std::uint8_t {
  sum,   // all of them added up
  mean,  // the sum divided by the number of workers
  max,   // the largest; NaN where any is
  min    // the smallest; NaN where any is
};

// `tensor` becomes the sum, mean, maximum or minimum of all workers' tensors, element by element,
// with the same bits on all. All workers of a World or Group call it with the same type, shape and
// `how`, compared first (skein/workers.h). Any dense tensor of floating-point numbers, integers or
// bools, on the CPU or a GPU, contiguous or not. float16 and bfloat16 are added up as float32 and
// rounded once; sums of integers wrap; the maximum and minimum are NaN where any worker's is. Where
// losses are tolerated a mean is over those that live. ConfigError, on all workers, for other types
// and for a mean of integers. The tensor's values are undefined after an IoError.
void all_reduce(const Workers& workers, const torch::Tensor& tensor, Reduce how = Reduce::sum);

// `tensor` becomes that of rank `root`, bit for bit. All workers call it with the same type, any
// dense one, and shape.
void broadcast(const Workers& workers, const torch::Tensor& tensor, int root = 0);

}  // namespace skein
