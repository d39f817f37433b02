#include "fabric/alone.h"

namespace skein {
namespace {

Task<> no_peer(const Operation& operation, int peer) {
  SKEIN_CHECK(false, "{} with rank {} in a world of one", operation.name, peer);
  co_return;
}

}  // namespace

Task<> AloneFabric::start_send(const Operation& operation, int peer, Span) {
  return no_peer(operation, peer);
}
Task<> AloneFabric::finish_sends(const Operation& operation, int peer) {
  return no_peer(operation, peer);
}
Task<> AloneFabric::receive_into(const Operation& operation, int peer, Span, Combine) {
  return no_peer(operation, peer);
}

}  // namespace skein
