#include "train/train_step.h"

#include <algorithm>
#include <utility>

namespace skein {
namespace {

// Relative to the speed that the emulated step is of; without one, to the fastest worker, which is
// as fast as this machine is.
std::optional<Pace> pace_of(const TrainOptions& options, int rank) {
  const auto& speeds = options.emulate_speeds;
  if (speeds.empty() && options.jitter == 0 && options.slowdowns.every.count() == 0) return {};
  double speed = speeds.empty() ? 1 : speeds[static_cast<std::size_t>(rank)];
  if (!speeds.empty() && options.emulate_step.count() == 0)
    speed /= *std::max_element(speeds.begin(), speeds.end());
  return Pace(speed, options.jitter, options.slowdowns,
              Rng(options.seed).split(0x70616365).split(static_cast<std::uint64_t>(rank)));
}

}  // namespace

TrainStep::TrainStep(Distributed& run, Model& model, const Compute& compute,
                     std::shared_ptr<const Dataset> data, const TrainOptions& options,
                     RunFigures& figures)
    : run_(run),
      access_(run),
      model_(model),
      compute_(compute),
      figures_(figures),
      prefetcher_(std::move(data), compute.upload()),
      pacer_(clock_, access_.arena(), options.emulate_step, options.batch,
             pace_of(options, run.world().rank())) {
  if (!pacer_.active()) return;
  access_.set_pace({[this](int slot) { pacer_.gradient_done(slot); },
                    [this](int slot) { pacer_.reading(slot); },
                    [this](std::string_view, Duration waited) { pacer_.waited(waited); },
                    [this] { pacer_.lay_out(access_.arena()); }});
}

void TrainStep::make(const JobData::Step& step, bool traced) {
  const JobData::Part& part = step.part;
  name_ = step.name;
  traced_ = traced;
  run_.accumulate(static_cast<int>(std::max<std::size_t>(1, part.pieces.size())));
  run_.expect(part.samples);
  const Duration updated = run_.totals().updating;
  loss_ = torch::Tensor();
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const double weight =
        static_cast<double>(part.pieces[i].size()) / static_cast<double>(part.samples);
    const JobData::Indices* next = i + 1 < part.pieces.size()     ? &part.pieces[i + 1]
                                   : step.upcoming.pieces.empty() ? nullptr
                                                                  : &step.upcoming.pieces.front();
    micro_batch(part.pieces[i], next, weight);
  }
  if (loss_.defined()) run_.report_loss(loss_);
  run_.step(part.samples);
  figures_.busy += run_.totals().updating - updated;
  figures_.samples += part.samples;
  figures_.micro_batches += std::ssize(part.pieces);
}

torch::Tensor TrainStep::forward(const Batch& batch) {
  const Autocast precision = compute_.autocast();
  return loss_of(model_.forward(batch.data), batch.target);
}

void TrainStep::micro_batch(const JobData::Indices& indices, const JobData::Indices* next,
                            double weight) {
  access_.set_phase(Phase::data);
  const Time loading = clock_.now();
  const Batch batch = prefetcher_.take(indices);
  if (next) prefetcher_.request(*next);
  access_.set_phase(Phase::forward);
  const Time begin = clock_.now();
  const Totals before = run_.totals();
  pacer_.begin(std::ssize(indices),
               before.updating - std::exchange(paced_update_, before.updating));
  torch::Tensor loss = forward(batch);
  if (weight != 1) loss = loss * weight;
  if (pacer_.active()) compute_.finish();
  pacer_.forward_done();
  const Time middle = clock_.now();
  access_.set_phase(Phase::backward);
  loss.backward();
  if (pacer_.active()) compute_.finish();
  pacer_.backward_done();
  const Time end = clock_.now();
  const Totals after = run_.totals();
  figures_.busy +=
      end - begin - (after.waiting - before.waiting) - (after.updating - before.updating);
  const torch::Tensor value = loss.detach().to(torch::kFloat64);
  loss_ = loss_.defined() ? loss_ + value : value;
  if (!traced_) return;
  access_.span(Lane::loading, "loading", loading, begin);
  access_.span(Lane::forward, "forward" + name_, begin, middle);
  access_.span(Lane::backward, "backward", middle, end);
}

}  // namespace skein
