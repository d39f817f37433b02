// In builds without OpenSSL, in place of the rest of this folder.
#include "fabric/tcp/tcp.h"
#include "skein/error.h"

namespace skein {

std::string why_no_tcp() {
  return "it was built without OpenSSL: apt install libssl-dev, configure again";
}

std::unique_ptr<Fabric> make_tcp_fabric(Loop&, const TcpOptions&) {
  throw ConfigError("the tcp fabric is not in this build: " + why_no_tcp());
}

}  // namespace skein
