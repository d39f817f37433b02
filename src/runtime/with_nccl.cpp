#include "runtime/with_nccl.h"

#include "cuda/cuda.h"
#include "fabric/nccl/library.h"
#include "fabric/nccl/nccl_fabric.h"
#include "fabric/rows.h"
#include "runtime/courier.h"

namespace skein {
namespace {

// A channel that only such questions come to, one after the other.
constexpr Channel kAskingForNccl = kMostChannels - 1;

}  // namespace

std::unique_ptr<Fabric> with_nccl_where_all_have_it(std::unique_ptr<Fabric> control,
                                                    Duration patience) {
  const nccl::Api* const api = nccl::library().api;
  const std::byte have{static_cast<unsigned char>(api && why_no_cuda().empty() ? 1 : 0)};
  Rows table(control->size(), 1);
  table.put(control->rank(), {&have, 1});
  const Merge merge = table.merge();
  Courier(control->loop(), control->events())
      .wait(control->combine(kAskingForNccl, table.record(), merge, Limit::silence(patience)));
  for (int rank = 0; rank < control->size(); ++rank)
    if (table.row(rank).value().front() == std::byte{}) return control;
  return std::make_unique<NcclFabric>(std::move(control), *api, false);
}

}  // namespace skein
