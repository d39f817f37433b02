// How many threads torch computes with.
#pragma once

namespace skein {

// From now on at most `count` (at least 1) threads of torch, and of the OpenBLAS beneath it if
// there is one, work on an operator. With more than one thread results may depend on their number.
void use_threads(int count);

}  // namespace skein
