#include "train/evaluation.h"

#include <algorithm>
#include <numeric>

#include "feed/feed.h"

namespace skein {
namespace {

constexpr std::int64_t kBatch = 250;

}  // namespace

std::optional<Quality> evaluate(Distributed& run, Model& model, const Compute& compute,
                                const Dataset& test, const TrainAccess::Buffers& buffers,
                                const std::function<bool()>& stop) {
  World& world = run.world();
  const auto number = torch::TensorOptions(compute.device()).dtype(torch::kFloat64);
  torch::Tensor loss = torch::zeros({}, number), correct = torch::zeros({}, number);
  double predictions = 0, stopped = 0;
  TrainAccess(run).evaluate(buffers, [&] {
    const Share share = share_among_present(world, test.size());
    const std::int64_t end = share.begin + share.count;
    for (std::int64_t next = share.begin; next < end;) {
      if (stop()) {
        stopped = 1;
        return;
      }
      std::vector<std::uint32_t> indices(static_cast<std::size_t>(std::min(kBatch, end - next)));
      std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(next));
      next += std::ssize(indices);
      // Added up where they are computed: nobody waits for a device before the end.
      const Batch batch = compute.upload().bring(test.get(indices));
      const auto count = static_cast<double>(batch.target.numel());
      const Autocast precision = compute.autocast();
      const torch::Tensor logits = model.forward(batch.data);
      loss += loss_of(logits, batch.target).to(torch::kFloat64) * count;
      correct += logits.argmax(-1).eq(batch.target).sum();
      predictions += count;
    }
  });
  const auto sums = world.sum({loss.item<double>(), correct.item<double>(), predictions, stopped});
  if (sums[3] > 0) return {};
  return Quality{sums[0] / sums[2], sums[1] / sums[2]};
}

}  // namespace skein
