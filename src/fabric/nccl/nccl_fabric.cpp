#include "fabric/nccl/nccl_fabric.h"

namespace skein {

NcclFabric::NcclFabric(std::unique_ptr<Fabric> control, const nccl::Api& api, bool required)
    : ForwardingFabric(*control, nullptr, static_cast<Collectives&>(*this)),
      control_(std::move(control)),
      api_(api),
      required_(required),
      changed_(loop()),
      attention_(loop()),
      settled_(loop()) {}

// Who is lost is not waited for.
NcclFabric::~NcclFabric() {
  watching_.clear();
  if (comm_ && lost_ && !in_flight_.empty()) comm_->abort();
}

Traits NcclFabric::traits() const {
  Traits out = ForwardingFabric::traits();
  out.ring_order = out.ring_order && !comm_;
  out.own_order = comm_ != nullptr;
  out.devices_only = required_;
  return out;
}

std::string NcclFabric::why_staged() const {
  if (!comm_) return why_not_.empty() ? ForwardingFabric::why_staged() : why_not_;
  return "messages between two workers go through the host, since they have no order that all "
         "know: "
         "NCCL carries collectives and exchanges";
}

Task<> NcclFabric::run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) {
  if (!takes(buffer))
    return on_control(operation,
                      control_->reduce_scatter(operation.channel, buffer, operation.limit, wire));
  count_sent(scattered_bytes(buffer, wire));
  Stages stages;
  add_scatter(stages, buffer, wire);
  return collective(operation,
                    {buffer.count, static_cast<std::uint32_t>(Kind::reduce_scatter),
                     static_cast<std::uint32_t>(buffer.type), static_cast<std::uint32_t>(wire), 0},
                    std::move(stages));
}

Task<> NcclFabric::run_all_gather(const Operation& operation, Span buffer, Wire wire) {
  if (!takes(buffer))
    return on_control(operation,
                      control_->all_gather(operation.channel, buffer, operation.limit, wire));
  count_sent(gathered_bytes(buffer, wire));
  Stages stages;
  add_gather(stages, buffer, wire);
  return collective(operation,
                    {buffer.count, static_cast<std::uint32_t>(Kind::all_gather),
                     static_cast<std::uint32_t>(buffer.type), static_cast<std::uint32_t>(wire), 0},
                    std::move(stages));
}

// NCCL's own all-reduce has other bits than its reduce-scatter and all-gather: it may choose
// another algorithm.
Task<> NcclFabric::run_all_reduce(const Operation& operation, Span buffer, Wire wire) {
  if (!takes(buffer))
    return on_control(operation,
                      control_->all_reduce(operation.channel, buffer, operation.limit, wire));
  count_sent(scattered_bytes(buffer, wire) + gathered_bytes(buffer, wire));
  Stages stages;
  add_scatter(stages, buffer, wire);
  add_gather(stages, buffer, wire);
  return collective(operation,
                    {buffer.count, static_cast<std::uint32_t>(Kind::all_reduce),
                     static_cast<std::uint32_t>(buffer.type), static_cast<std::uint32_t>(wire), 0},
                    std::move(stages));
}

Task<> NcclFabric::run_combine(const Operation& operation, Span record, const Merge& merge) {
  return on_control(operation,
                    control_->combine(operation.channel, record, merge, operation.limit));
}

}  // namespace skein
