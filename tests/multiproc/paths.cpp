#include "multiproc/paths.h"

namespace skein::testing {

const char* const kSkein = SKEIN_BINARY;
const char* const kDearProgram = SKEIN_DEAR_PROGRAM;
const char* const kSource = SKEIN_SOURCE_DIR;

}  // namespace skein::testing
