// The command line is two programs of one source: `skein`, which starts at once since it has no
// torch, and `skein-torch` beside it, which has. What computes with torch is done by the second.
#pragma once

namespace skein {

// Returns in a process that has torch. `skein` becomes `skein-torch`, which begins anew with the
// same arguments and environment: so it is called before anything is printed, opened or started.
// Throws Error where that program is missing.
void with_torch();

}  // namespace skein
