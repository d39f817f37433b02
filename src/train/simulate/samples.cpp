#include "train/simulate/samples.h"

namespace skein {
namespace {

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

torch::Tensor room_for(std::int64_t count, const torch::Tensor& like, torch::Device device) {
  auto sizes = like.sizes().vec();
  sizes.front() = count;
  return torch::empty(sizes, like.options().device(device));
}

}  // namespace

// The pinned memory is torch's, which keeps it until the device has read it.
torch::Tensor numbers_on(torch::Device device, std::span<const std::uint32_t> indices) {
  const torch::Tensor numbers =
      torch::from_blob(const_cast<std::uint32_t*>(indices.data()),
                       {static_cast<std::int64_t>(indices.size())}, torch::kInt32);
  if (device.is_cpu()) return numbers.clone();
  return numbers.pin_memory().to(device, /*non_blocking=*/true);
}

Samples::Samples(const Dataset& data, const Compute& compute, std::int64_t most_bytes)
    : data_(data), compute_(compute) {
  if (most_bytes == 0) return;
  const std::uint32_t first = 0;
  const Batch one = data.get({&first, 1});
  if ((bytes_of(one.data) + bytes_of(one.target)) * data.size() <= most_bytes) hold();
}

void Samples::hold() {
  for_each_block(size(), [&](std::span<const std::uint32_t> indices) {
    const Batch block = data_.get(indices);
    if (!held())
      all_ = {room_for(size(), block.data, compute_.device()),
              room_for(size(), block.target, compute_.device())};
    all_.data.narrow(0, indices.front(), block.samples()).copy_(block.data);
    all_.target.narrow(0, indices.front(), block.samples()).copy_(block.target);
  });
}

Batch Samples::select(const torch::Tensor& numbers) const {
  Batch batch{all_.data.index_select(0, numbers), all_.target.index_select(0, numbers)};
  if (compute_.channels_last() && batch.data.dim() == 4)
    batch.data = batch.data.contiguous(at::MemoryFormat::ChannelsLast);
  return batch;
}

Batch Samples::get(std::span<const std::uint32_t> indices) const {
  if (held()) return select(numbers_on(compute_.device(), indices));
  return compute_.upload().bring(data_.get(indices));
}

}  // namespace skein
