// Which LibTorch this is. No torch here, so that the command line can ask.
#pragma once

#include <string>

namespace skein {

std::string torch_version();  // of the headers this was compiled with, such as "1.13.1"

}  // namespace skein
