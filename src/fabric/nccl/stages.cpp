// The collectives as what NCCL has for them.
//
// Parts are the control plane's, so that a vector is cut the same way wherever it lies. Where all
// are equal and follow each other NCCL's reduce-scatter and all-gather do; else one group has a
// reduction, or a broadcast, for each part, which moves as many bytes.
#include "fabric/nccl/nccl_fabric.h"
#include "kernels/bf16.h"

namespace skein {
namespace {

nccl::DataType type_of(Span span) {
  return span.type == Type::f32    ? nccl::DataType::f32
         : span.type == Type::bf16 ? nccl::DataType::bf16
                                   : nccl::DataType::byte;
}

}  // namespace

bool NcclFabric::equal_parts(std::size_t count) const {
  const auto ranks = static_cast<std::size_t>(size());
  if (count % ranks != 0) return false;
  const std::size_t each = count / ranks;
  for (std::size_t r = 0; r < ranks; ++r)
    if (part(count, static_cast<int>(r)) != Range{r * each, each}) return false;
  return true;
}

// In place: a rank's sum goes to its own part.
void NcclFabric::sum_parts(nccl::Comm comm, nccl::Stream stream, Span buffer) const {
  if (buffer.count > 0 && equal_parts(buffer.count)) {
    const Span own = buffer.at(part(buffer.count, rank()));
    comm_->check(api_.reduce_scatter(buffer.data, own.data, own.count, type_of(buffer), nccl::kSum,
                                     comm, stream),
                 "ncclReduceScatter");
    return;
  }
  for (int owner = 0; owner < size(); ++owner) {
    const Span each = buffer.at(part(buffer.count, owner));
    if (each.count > 0)
      comm_->check(api_.reduce(each.data, each.data, each.count, type_of(each), nccl::kSum, owner,
                               comm, stream),
                   "ncclReduce");
  }
}

void NcclFabric::hand_out_parts(nccl::Comm comm, nccl::Stream stream, Span buffer) const {
  if (buffer.count > 0 && equal_parts(buffer.count)) {
    const Span own = buffer.at(part(buffer.count, rank()));
    comm_->check(api_.all_gather(own.data, buffer.data, own.count, type_of(buffer), comm, stream),
                 "ncclAllGather");
    return;
  }
  for (int owner = 0; owner < size(); ++owner) {
    const Span each = buffer.at(part(buffer.count, owner));
    if (each.count > 0)
      comm_->check(
          api_.broadcast(each.data, each.data, each.count, type_of(each), owner, comm, stream),
          "ncclBroadcast");
  }
}

void NcclFabric::add_scatter(Stages& stages, Span buffer, Wire wire) {
  if (wire == Wire::bf16) return add_half_scatter(stages, buffer);
  stages.push_back(
      {[this, buffer](nccl::Comm comm, nccl::Stream stream) { sum_parts(comm, stream, buffer); }});
}

void NcclFabric::add_gather(Stages& stages, Span buffer, Wire wire) {
  if (wire == Wire::bf16) return add_half_gather(stages, buffer);
  stages.push_back({[this, buffer](nccl::Comm comm, nccl::Stream stream) {
    hand_out_parts(comm, stream, buffer);
  }});
}

// All operations follow each other on one queue: one room serves them all. It is taken in the
// queue's order, by all ranks before the same operation, so that none waits for another's.
Span NcclFabric::scratch(std::size_t count) {
  if (!scratch_ || scratch_->span().count < count)
    scratch_ = loop().queue()->allocate(count, Type::bf16);
  return scratch_->span().at({0, count});
}

// NCCL's own sums of bfloat16 are rounded at every hop. Here a value is rounded once, as
// fabric/half.h promises: ranks send each other their parts as they are packed, and add in float32.
void NcclFabric::add_half_scatter(Stages& stages, Span buffer) {
  const Range own = part(buffer.count, rank());
  const std::size_t peers = static_cast<std::size_t>(size()) - 1;
  const auto packed = [this, buffer, own, peers] {
    return scratch(buffer.count + peers * own.count).at({0, buffer.count});
  };
  const auto arrived = [this, buffer, own, peers](int round) {
    return scratch(buffer.count + peers * own.count)
        .at({buffer.count + (static_cast<std::size_t>(round) - 1) * own.count, own.count});
  };
  const auto source = [this](int round) { return (rank() + round) % size(); };
  stages.push_back({[=](nccl::Comm, nccl::Stream) {
                      if (buffer.count > 0) to_bf16(packed(), buffer);
                    },
                    false});
  stages.push_back({[=, this](nccl::Comm comm, nccl::Stream stream) {
    for (int round = 1; round < size(); ++round) {
      const Span theirs = packed().at(part(buffer.count, source(round)));
      const Span room = arrived(round);
      if (theirs.count > 0)
        comm_->check(
            api_.send(theirs.data, theirs.count, nccl::DataType::bf16, source(round), comm, stream),
            "ncclSend");
      if (room.count > 0)
        comm_->check(
            api_.recv(room.data, room.count, nccl::DataType::bf16, source(round), comm, stream),
            "ncclRecv");
    }
  }});
  stages.push_back({[=, this](nccl::Comm, nccl::Stream) {
                      for (int round = 1; own.count > 0 && round < size(); ++round)
                        add_bf16(buffer.at(own), arrived(round));
                    },
                    false});
}

void NcclFabric::add_half_gather(Stages& stages, Span buffer) {
  const Range own = part(buffer.count, rank());
  const auto packed = [this, buffer] { return scratch(buffer.count); };
  stages.push_back({[=](nccl::Comm, nccl::Stream) {
                      if (own.count > 0) to_bf16(packed().at(own), buffer.at(own));
                    },
                    false});
  stages.push_back({[=, this](nccl::Comm comm, nccl::Stream stream) {
    hand_out_parts(comm, stream, packed());
  }});
  stages.push_back({[=](nccl::Comm, nccl::Stream) {
                      if (buffer.count > 0) from_bf16(buffer, packed());
                    },
                    false});
}

Task<> NcclFabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  if (!takes(buffer))
    return on_control(operation,
                      control_->broadcast(operation.channel, buffer, root, operation.limit));
  if (rank() == root) count_sent(buffer.bytes() * (static_cast<std::size_t>(size()) - 1));
  Stages stages;
  stages.push_back({[this, buffer, root](nccl::Comm comm, nccl::Stream stream) {
    if (buffer.count > 0)
      comm_->check(api_.broadcast(buffer.data, buffer.data, buffer.count, type_of(buffer), root,
                                  comm, stream),
                   "ncclBroadcast");
  }});
  return collective(operation,
                    {buffer.count, static_cast<std::uint32_t>(Kind::broadcast),
                     static_cast<std::uint32_t>(buffer.type), 0, static_cast<std::uint32_t>(root)},
                    std::move(stages));
}

std::size_t NcclFabric::scattered_bytes(Span buffer, Wire wire) const {
  return (buffer.count - part(buffer.count, rank()).count) *
         (wire == Wire::bf16 ? size_of(Type::bf16) : size_of(buffer.type));
}

std::size_t NcclFabric::gathered_bytes(Span buffer, Wire wire) const {
  return part(buffer.count, rank()).count * (static_cast<std::size_t>(size()) - 1) *
         (wire == Wire::bf16 ? size_of(Type::bf16) : size_of(buffer.type));
}

}  // namespace skein
