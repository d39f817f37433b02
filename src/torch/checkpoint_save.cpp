#include <ATen/record_function.h>
#include <fmt/format.h>

#include "core/atomic_file.h"
#include "core/host_memory.h"
#include "core/packed.h"
#include "keep/run_folder.h"
#include "keep/unfinished_checkpoint.h"
#include "kernels/kernels.h"
#include "torch/checkpoints.h"
#include "torch/run_state.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

// A file of this worker's part, and what writes it, on any thread.
struct File {
  std::string name;
  std::function<FileSum(const fs::path& path)> write;
};

// A copy is made where there is twice the room for it: training needs some, too.
bool has_room(Distributed::Impl& run, bool leads) {
  const std::uint64_t plane = run.binding().arena().size() * sizeof(float);
  const std::uint64_t state = run.optimizer().owned_state().vector_count() * plane;
  const std::uint64_t shared = run.strategy().shared_state().vectors.size() * plane;
  std::uint64_t bytes = leads ? plane + state + shared : 0;
  std::uint64_t own = run.averages().ema() ? plane : 0;
  if (!run.strategy().equal_replicas()) own += state;
  for (const auto* buffers : {&run.binding().float_buffers(), &run.binding().integer_buffers()})
    for (const NamedTensor& each : *buffers) own += each.tensor.nbytes();
  bytes += own * static_cast<std::uint64_t>(run.world().size());  // perhaps all on this host
  const auto available = available_memory();
  return !available || 2 * bytes <= *available;
}

// As a thread may write it while training goes on; or as it is, where training waits.
File file_of(const std::string& name, std::vector<NamedTensor> tensors, bool copied) {
  check_writable(name, tensors);
  const torch::NoGradGuard no_grad;
  if (copied)
    for (NamedTensor& each : tensors)
      each.tensor = torch::empty(each.tensor.sizes(), each.tensor.dtype()).copy_(each.tensor);
  return {name, [tensors = std::move(tensors)](const fs::path& path) {
            return write_safetensors(path, tensors);
          }};
}

// All workers call it; the leader gets the file. What it cannot write now it says when it is asked
// to: the others do not wait for that.
File optimizer_file(Distributed::Impl& run, int leader, const fs::path& folder, bool copied) {
  const std::string name = "optimizer.safetensors";
  if (run.world().rank() != leader) {
    stream_parameters(run, leader, {});
    return {};
  }
  const auto shapes = state_shapes(run);
  std::size_t count = 0;
  for (const TensorShape& each : shapes)
    count += static_cast<std::size_t>(c10::multiply_integers(each.sizes));
  if (copied) {
    torch::Tensor all;
    try {
      all = torch::empty({static_cast<std::int64_t>(count)});
    } catch (const std::exception&) {
      stream_parameters(run, leader, [](Span) {});
      return {name, [error = std::current_exception()](const fs::path&) -> FileSum {
                std::rethrow_exception(error);
              }};
    }
    const Span memory{all.data_ptr<float>(), count};
    std::size_t at = 0;
    stream_parameters(run, leader, [&](Span values) {
      copy(memory.at({at, values.count}), values);
      if (values.device.kind == Device::gpu) current_queue()->finish();
      at += values.count;
    });
    return {name, [shapes, all, memory](const fs::path& path) {
              return stream_safetensors(path, shapes,
                                        [&](const WriteValues& write) { write(memory); });
            }};
  }
  FileSum sum;
  bool streamed = false;
  std::exception_ptr error;
  try {
    sum = stream_safetensors(folder / name, shapes, [&](const WriteValues& write) {
      streamed = true;
      stream_parameters(run, leader, [&](Span values) {
        if (error) return;
        try {
          write(values);
        } catch (const Error&) {
          error = std::current_exception();
        }
      });
      if (error) std::rethrow_exception(error);
    });
  } catch (const Error&) {
    error = std::current_exception();
    if (!streamed) stream_parameters(run, leader, [](Span) {});
  }
  return {name, [sum, error](const fs::path&) {
            if (error) std::rethrow_exception(error);
            return sum;
          }};
}

// What a worker that does not lead says of its part, which is one file.
struct PartReport {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0, failed = 0;
  char reason[496] = {};  // zeros follow it
};

PartReport report_of(const FileSum& sum) { return {sum.bytes, sum.crc32c, 0, {}}; }

PartReport report_of_failure(const std::string& reason) {
  PartReport report;
  report.failed = 1;
  reason.copy(report.reason, sizeof report.reason - 1);
  return report;
}

// However it ends, the leader's thread hears of it.
Task<> hear_part(Fabric& fabric, Channel channel, int rank, Limit limit,
                 std::shared_ptr<CheckpointParts> parts) {
  struct Otherwise {
    CheckpointParts& parts;
    int rank;
    ~Otherwise() { parts.lost(rank, "the run has ended before"); }
  };
  const Otherwise otherwise{*parts, rank};
  PartReport report;
  try {
    co_await fabric.receive(channel, rank, message_in(report), limit);
  } catch (const IoError& error) {
    parts->lost(rank, error.what());
    co_return;
  }
  report.reason[sizeof report.reason - 1] = '\0';
  if (report.failed != 0)
    parts->failed(rank, report.reason);
  else
    parts->done(rank, {{own_file({}, rank).string(), {report.bytes, report.crc32c}}});
}

Task<> send_report(Fabric& fabric, Channel channel, int leader, Limit limit, PartReport report) {
  try {
    co_await fabric.send(channel, leader, message_in(report), limit);
  } catch (const IoError&) {  // a lost leader makes no checkpoint
  }
}

// What the thread does.
struct Writing {
  UnfinishedCheckpoint checkpoint;
  int rank;
  std::vector<File> files;
  std::shared_ptr<CheckpointParts> parts;  // of the leader
  std::function<void(const PartReport&)> tell_leader;
  const std::atomic<bool>* hurry;
  bool without_the_lost;
  int keep;

  void operator()() {
    const at::DisableRecordFunctionGuard unobserved;
    try {
      FileSums sums;
      for (File& each : files) {
        sums[each.name] = each.write(checkpoint.path() / each.name);
        each.write = nullptr;  // and the memory that it holds
      }
      if (parts)
        parts->done(rank, sums);
      else
        tell_leader(report_of(sums.at(own_file({}, rank).string())));
    } catch (const std::exception& error) {
      if (!parts) tell_leader(report_of_failure(error.what()));
      throw;
    }
    if (parts) checkpoint.publish(parts->wait(*hurry, without_the_lost), keep);
  }
};

}  // namespace

fs::path own_file(const fs::path& checkpoint, int rank) {
  return checkpoint / fmt::format("rank-{}.safetensors", rank);
}

Checkpoints::~Checkpoints() {
  if (!pending_) return;
  const bool failed = !run_.usable() || std::uncaught_exceptions() > 0;
  if (failed) writer_.hurry_up();  // others may be gone
  // The leader may wait for this worker's part: it is not lost, only slow.
  World::Impl& world = run_.world().impl();
  while (!writer_.wait_for(world.options().patience / 4)) world.fabric().progressed();
  // Nor may this worker leave with its report on the way.
  Job telling;
  world.courier().with_loop([&] { telling = telling_; });
  try {
    if (telling.valid() && !failed) world.courier().wait(telling.join());
  } catch (const Error&) {  // of something else that runs in the background
  }
  if (const std::string error = writer_.take_error(); !error.empty())
    fmt::print(stderr, "skein: the last checkpoint was not saved: {}\n", error);
}

bool Checkpoints::present(int rank) const {
  return run_.world().impl().present()[static_cast<std::size_t>(rank)];
}

// One that is lost while it begins has begun nothing: the next one does.
int Checkpoints::begin(const UnfinishedCheckpoint& checkpoint, const Save& what) {
  World& world = run_.world();
  for (;;) {
    const int leader = world.impl().leader();
    const bool leads = world.rank() == leader;
    std::exception_ptr failed;
    try {
      if (leads) {
        what.prepare();
        checkpoint.begin();
      }
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
    world.impl().agree_on_success("the opening of its folder", failed);
    const auto ids = world.impl().gather_text(leads ? run_id : "");
    if (!present(leader)) continue;
    run_id = ids[static_cast<std::size_t>(leader)];
    what.prepared();
    return leader;
  }
}

void Checkpoints::save(const fs::path& folder, Save what) {
  World& world = run_.world();
  const PhaseScope phase(world.impl().board(), Phase::saving);
  finish();
  run_.replicas().compare("save_checkpoint()", Replicas::Differences::where_all_live);
  const UnfinishedCheckpoint checkpoint(folder, std::to_string(what.state.samples));
  const int leader = begin(checkpoint, what), rank = world.rank();
  const bool leads = rank == leader;
  std::vector<int> ranks;
  for (int each = 0; each < world.size(); ++each)
    if (present(each)) ranks.push_back(each);
  const bool room = world.sum_integers({has_room(run_, leads) ? 0 : 1}).front() == 0;
  const bool copied = room && !what.wait;

  what.state.saved = utc_now();
  what.state.workers = world.size();
  what.state.order = order_of(run_);
  what.state.optimizer = run_.settings().text();
  what.state.ordered = run_.strategy().wants_order_of_reads() && run_.order_is_settled();
  if (what.state.run_id.empty()) what.state.run_id = run_id;
  std::vector<File> files;
  const auto model = run_.averages().tensors_to_save(run_.averages().buffers());
  std::exception_ptr failed;
  try {
    const AtRest rest(run_);
    auto own = own_tensors(run_, what.state.steps);
    own.insert(own.end(), what.own.begin(), what.own.end());
    files.push_back(file_of(own_file({}, rank).string(), std::move(own), copied));
    if (leads) files.push_back(file_of("model.safetensors", model, copied));
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  world.impl().agree_on_success("its copy", failed);
  File optimizer = optimizer_file(run_, leader, checkpoint.path(), copied);
  if (leads) {
    files.push_back(std::move(optimizer));
    files.push_back({"state.json", [text = print_state(what.state)](const fs::path& path) {
                       return write_whole(path, text);
                     }});
  }
  // Before anybody has written: who is lost meanwhile is heard of, too.
  Courier& courier = world.impl().courier();
  Fabric& fabric = world.impl().fabric();
  if (channel_ < 0) courier.with_loop([&] { channel_ = fabric.allot_channels(); });
  std::shared_ptr<CheckpointParts> parts;
  std::function<void(const PartReport&)> tell_leader;
  if (leads) {
    parts = std::make_shared<CheckpointParts>(ranks);
    courier.with_loop([&] {
      for (const int each : ranks)
        if (each != rank)
          fabric.loop().spawn(hear_part(fabric, channel_, each, world.impl().limit(), parts));
    });
  } else {
    tell_leader = [this, &courier, &fabric,
                   limit = world.impl().limit()](const PartReport& report) {
      courier.post([this, &fabric, limit, report] {
        telling_ = fabric.loop().spawn(send_report(fabric, channel_, leader_, limit, report));
      });
    };
  }
  unfinished_ = checkpoint.path();
  published_ = checkpoint.published();
  leader_ = leader;
  pending_ = true;
  writer_.start(Writing{checkpoint, rank, std::move(files), parts, std::move(tell_leader),
                        &writer_.hurry(), run_.strategy().survives_losses(), what.keep});
  if (!copied) finish();
}

// The folder that was to get its name is there still, or neither is.
bool Checkpoints::lost_with_its_leader() const {
  std::error_code none;
  return !present(leader_) && (fs::exists(unfinished_, none) || !fs::exists(published_, none));
}

// All meet until all are done, each now and then: so nobody is taken for lost whose disk is slow.
void Checkpoints::finish() {
  if (!pending_) return;
  World& world = run_.world();
  const PhaseScope phase(world.impl().board(), Phase::saving);
  for (bool all_done = false; !all_done;) {
    const bool done = writer_.wait_for(world.impl().options().patience / 4);
    all_done = world.sum_integers({done ? 0 : 1}).front() == 0;
  }
  pending_ = false;
  auto errors = world.impl().gather_text(writer_.take_error());
  if (world.sum_integers({lost_with_its_leader() ? 1 : 0}).front() > 0)
    errors[static_cast<std::size_t>(leader_)] = "it was lost while it saved";
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    std::error_code none;
    if (world.rank() == world.impl().leader()) fs::remove_all(unfinished_, none);
    throw Error(fmt::format("the last checkpoint was not saved: rank {}: {}", rank, errors[rank]));
  }
}

}  // namespace skein
