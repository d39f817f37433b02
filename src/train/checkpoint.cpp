#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "torch/run_state.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPosition = "data_position";
constexpr const char* kBlocks = "data_blocks";

// With another number of workers nobody can go on with the old ones' own state: the averages do,
// and what they had drawn from the queue goes back to it.
void return_blocks(const fs::path& checkpoint, int old_workers, BlockQueue::State& queue) {
  for (int rank = 0; rank < old_workers; ++rank) {
    if (!fs::exists(own_file(checkpoint, rank))) continue;  // it was lost
    const auto held = whole_numbers(read_safetensors(own_file(checkpoint, rank)), kBlocks);
    queue.returned.insert(queue.returned.end(), held.begin(), held.end());
  }
  std::sort(queue.returned.begin(), queue.returned.end());
}

}  // namespace

void save_checkpoint(const fs::path& out, Distributed::Impl& run, const TrainingState& state,
                     int keep) {
  run.flush();
  Checkpoints::Save save;
  save.state.run_id = state.run_id;
  save.state.samples = state.progress.samples;
  save.state.steps = state.progress.steps;
  save.state.batch_reference = state.progress.batch_reference;
  save.state.round_reference = state.progress.round_reference;
  save.state.identity = state.identity;
  save.state.data = CheckpointState::Data{state.position.epoch, state.position.offset,
                                          state.queue.next, state.queue.returned};
  save.own = {{kPosition, whole_numbers({state.position.epoch, state.position.offset})},
              {kBlocks, whole_numbers(state.queue.held)}};
  save.keep = keep;
  run.checkpoints().save(out / "checkpoints", std::move(save));
  run.after_flush();
}

fs::path find_checkpoint(World& world, const fs::path& folder, const Say& say) {
  const std::string who = fmt::format("--resume {}", folder.string());
  const fs::path found = find_checkpoint(world, folder, who, say);
  if (found.empty())
    throw ConfigError(
        fmt::format("{}: no checkpoint there (expected {}/checkpoints/SAMPLES/state.json)", who,
                    folder.string()));
  return found;
}

TrainingState load_checkpoint(const fs::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity) {
  const auto loaded = run.checkpoints().load(checkpoint, identity);
  const CheckpointState& saved = loaded.state;
  const auto data = saved.data.value_or(CheckpointState::Data());
  TrainingState state{run.worker().progress,
                      {data.epoch, data.offset},
                      {data.next_block, data.returned_blocks, {}},
                      saved.identity,
                      saved.run_id};
  if (loaded.own) {
    if (const auto position = whole_numbers(*loaded.own, kPosition); position.size() == 2)
      state.position = {position[0], position[1]};
    state.queue.held = whole_numbers(*loaded.own, kBlocks);
  } else if (run.world().rank() == 0) {
    return_blocks(checkpoint, saved.workers, state.queue);
  }
  return state;
}

}  // namespace skein
