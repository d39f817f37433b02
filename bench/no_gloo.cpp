#include "rival.h"

namespace skein::bench {

std::unique_ptr<Rival> make_gloo(int, int, const std::string&) { return nullptr; }

}  // namespace skein::bench
