#include "train/train.h"

#include <malloc.h>
#include <torch/torch.h>

#include <climits>

#include "launch/environment.h"
#include "skein/stop.h"
#include "train/threads.h"
#include "train/trainer.h"

namespace skein {
namespace {

// Each step allocates and frees the same large tensors. Given back to the system they would come
// again as pages to be cleared: an eighth of the time of resnet18 on a processor.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that it may be
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

// Hosts may see a shared folder as it was some seconds ago: whether there is something to resume is
// for one worker to say.
TrainOptions agree(World& world, TrainOptions options) {
  if (!options.resume_auto) return options;
  const bool resumes = world.rank() == 0 && !options.resume.empty();
  options.resume = world.sum_integers({resumes ? 1 : 0}).front() > 0 ? options.out : "";
  return options;
}

}  // namespace

int run_training(const TrainOptions& options) {
  const Time started = SteadyClock().now();
  keep_freed_memory();
  use_threads(options.threads);
  stop_on_signals();
  JoinOptions join;
  join.fabric = options.fabric;
  join.rendezvous = options.rendezvous;
  join.secret_file = options.credentials.secret;
  join.tls_cert_file = options.credentials.cert;
  join.tls_key_file = options.credentials.key;
  join.tls_ca_file = options.credentials.ca;
  join.encrypt = options.encrypt;
  join.two_levels = options.two_levels;
  join.patience = options.deadline;
  join.emulate_bytes_per_second = options.emulate_link;
  join.emulate_latency = options.emulate_latency;
  World world = World::join(join);
  try {
    const Placement placement = detect(process_environment).value_or(Placement{});
    const TrainOptions agreed = agree(world, options);
    const bool whole = Trainer(world, agreed, placement.local_rank, started).run();
    world.barrier();  // nobody leaves while others may still wait for it
    TrainAccess::set_phase(world, Phase::done);
    return whole ? 0 : kStoppedCode;
  } catch (const std::exception& error) {
    world.fail(error);
    throw;
  }
}

}  // namespace skein
