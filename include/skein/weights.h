// Which weights an evaluation or a file gets.
#pragma once

namespace skein {

// The model as it is trained, or the moving average of it that Distributed::keep_ema() asks for.
enum class Weights { trained, ema };

}  // namespace skein
