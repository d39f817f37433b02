#include "fabric/nccl/communicator.h"

#include <fmt/format.h>

#include <thread>

#include "skein/error.h"

namespace skein::nccl {
namespace {

// How long a rank that leaves waits for what is under way, and for an abort.
constexpr Duration kLeaving = std::chrono::seconds(2);
constexpr Duration kAborting = std::chrono::seconds(3);

bool is_error(Result result) { return result != Result::success && result != Result::in_progress; }

}  // namespace

Communicator::Communicator(const Api& api, Queue& queue, int ranks, const UniqueId& id, int rank)
    : api_(api), queue_(queue) {
  const auto scope = api_.on_device(queue_.device().index);
  Config config;
  check(api_.comm_init_rank_config(&comm_, ranks, id, rank, &config), "joining the ranks");
}

Communicator::~Communicator() {
  if (!comm_) return;
  try {
    if (!abort_) end_well();
  } catch (const std::exception&) {
  }
  if (comm_ && !abort_) abort();
  if (abort_) static_cast<void>(within(kAborting, [this] { return abort_has_ended(); }));
}

bool Communicator::within(Duration patience, const std::function<bool()>& holds) {
  const SteadyClock clock;
  for (const Time until = clock.now() + patience; !holds();) {
    if (clock.now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// First the queue: finalizing waits for it, and says nothing meanwhile.
void Communicator::end_well() {
  const auto scope = api_.on_device(queue_.device().index);
  const auto settled = [this] { return state() != Result::in_progress; };
  const Mark end = queue_.record();
  if (!within(kLeaving, [&] { return settled() && reached(end); })) return;
  if (is_error(state()) || is_error(api_.comm_finalize(comm_))) return;
  if (!within(kLeaving, settled) || is_error(state())) return;
  static_cast<void>(api_.comm_destroy(comm_));
  comm_ = nullptr;
}

void Communicator::group(const std::function<void(Comm, Stream)>& put) {
  const auto scope = api_.on_device(queue_.device().index);
  check(api_.group_start(), "beginning a group");
  try {
    put(comm_, api_.stream_of(queue_));
  } catch (...) {
    static_cast<void>(api_.group_end());
    throw;
  }
  check(api_.group_end(), "ending a group");
}

void Communicator::check(Result result, const char* what) const {
  if (is_error(result)) throw Error(fmt::format("{}: {}", what, what_is_wrong(result)));
}

Result Communicator::state() const {
  if (abort_) return Result::system_error;
  Result state = Result::success;
  const Result asked = api_.comm_get_async_error(comm_, &state);
  return asked == Result::success ? state : asked;
}

std::string Communicator::what_is_wrong(Result result) const {
  const char* const detail = comm_ && !abort_ ? api_.get_last_error(comm_) : nullptr;
  return fmt::format("NCCL says: {}{}{}", api_.get_error_string(result),
                     detail && *detail ? ", " : "", detail ? detail : "");
}

void Communicator::abort() {
  if (abort_ || !comm_) return;
  abort_ = std::make_shared<Abort>();
  std::thread([&api = api_, comm = comm_, device = queue_.device().index, state = abort_] {
    try {
      const auto scope = api.on_device(device);
      static_cast<void>(api.comm_abort(comm));
    } catch (const std::exception&) {  // the device is lost, and all on it
    }
    state->ended.store(true, std::memory_order_release);
  }).detach();
}

}  // namespace skein::nccl
