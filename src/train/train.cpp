#include "train/train.h"

#include <torch/torch.h>

#include "launch/environment.h"
#include "train/stop_request.h"
#include "train/trainer.h"

namespace skein {

int run_training(const TrainOptions& options) {
  const Time started = SteadyClock().now();
  at::set_num_threads(options.threads);
  watch_for_stop_requests();
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
    Trainer(world, options, placement.local_rank, started).run();
    world.barrier();  // nobody leaves while others may still wait for it
    world.impl().board().set_phase(Phase::done);
    return 0;
  } catch (const std::exception& error) {
    const auto* lost = dynamic_cast<const IoError*>(&error);
    world.impl().fail(error.what(), lost ? lost->peer() : -1);
    throw;
  }
}

}  // namespace skein
