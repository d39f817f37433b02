#include "skein/version.h"

namespace skein {

const char* version() noexcept { return SKEIN_VERSION; }

}  // namespace skein
