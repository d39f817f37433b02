#include "strategy/worker.h"

namespace skein {

void Worker::update(Range range, const UpdateContext& context) {
  const Time begin = loop().now();
  optimizer_.update(range, arena_.parameters(), arena_.gradients(), context);
  const Time end = loop().now();
  meters.update += end - begin;
  trace_.span(Lane::update, "update", begin, end);
}

}  // namespace skein
