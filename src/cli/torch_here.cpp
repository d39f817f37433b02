// Of skein-torch.
#include "cli/with_torch.h"

namespace skein {

void with_torch() {}

}  // namespace skein
