#include "torch/replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/print_ranks.h"
#include "torch/distributed_impl.h"

namespace skein {
namespace {

#ifdef NDEBUG
constexpr bool kVerifiesEachFlush = false;
#else
constexpr bool kVerifiesEachFlush = true;
#endif

// "one value on ranks 0, 2, another on rank 1"
std::string print_groups(const std::vector<Workers::Calls::Row>& rows, std::size_t offset) {
  std::vector<std::pair<std::uint64_t, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].empty()) continue;
    std::uint64_t value = 0;
    std::memcpy(&value, rows[rank].data() + offset, sizeof(value));
    const auto known =
        std::ranges::find(groups, value, [](const auto& each) { return each.first; });
    if (known == groups.end())
      groups.push_back({value, {static_cast<int>(rank)}});
    else
      known->second.push_back(static_cast<int>(rank));
  }
  if (groups.size() < 2) return "";
  std::vector<std::string> parts;
  parts.reserve(groups.size());
  for (const auto& [value, ranks] : groups)
    parts.push_back(
        fmt::format("{} on {}", parts.empty() ? "one value" : "another", print_ranks(ranks)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  constexpr std::size_t kLanes = 4;
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::array<std::uint64_t, kLanes> lanes{1, 2, 3, 4}, words{};
  const auto take = [&](std::span<const std::byte> piece) {
    std::memcpy(words.data(), piece.data(), piece.size());
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = std::rotl((lanes[i] ^ words[i]) * kOdd, 29);
  };
  std::uint64_t digest = bytes.size();
  for (; bytes.size() >= sizeof(words); bytes = bytes.subspan(sizeof(words)))
    take(bytes.first(sizeof(words)));
  words = {};
  take(bytes);
  for (const std::uint64_t lane : lanes) digest = std::rotl((digest ^ lane) * kOdd, 29);
  return digest;
}

// Flushes end together on all workers, so what one of them has found all can hear of.
void Replicas::check_module() {
  std::exception_ptr changed;
  try {
    run_.binding().check_module(run_.module());
  } catch (const ConfigError&) {
    changed = std::current_exception();
  }
  // Workers may have been brought to it by different calls.
  const Workers::Calls::Scope no_other(run_.calls(), "");
  const Workers::Calls::Scope call(run_.calls(), "run.flush()");
  run_.world().impl().agree_on_success("its end", changed);
  if constexpr (kVerifiesEachFlush) compare("flush()", Differences::where_all_live);
}

// Returns those of slots by the order of registration, then those of parameters that were frozen
// before.
std::vector<std::uint64_t> Replicas::digests(Span parameters) {
  const Binding& binding = run_.binding();
  const auto& slots = binding.arena().slots();
  std::vector<std::uint64_t> digests(slots.size());
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    const Span own = parameters.at(slots[slot].range);
    const auto memory = own.device.kind == Device::gpu ? run_.on_host(own) : nullptr;
    digests[static_cast<std::size_t>(binding.registered(static_cast<int>(slot)))] =
        digest_of(std::as_bytes((memory ? memory->span() : own).host()));
  }
  for (const NamedTensor& each : binding.frozen_parameters()) {
    const torch::Tensor values = each.tensor.detach().to(torch::kCPU).contiguous();
    digests.push_back(
        digest_of({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}));
  }
  return digests;
}

std::string Replicas::name_of_digest(std::size_t index) const {
  const Binding& binding = run_.binding();
  for (int slot = 0; slot < binding.slots(); ++slot)
    if (binding.registered(slot) == static_cast<int>(index))
      return binding.names_of_slot(slot).front();
  return binding.frozen_parameters()[index - static_cast<std::size_t>(binding.slots())].name;
}

void Replicas::compare(const std::string& call, Differences refused) {
  const auto apart = run_.averages().model_apart();
  const std::vector<std::uint64_t> own =
      digests(apart ? apart->span() : run_.binding().arena().parameters());
  const std::array<std::uint64_t, 1> all{digest_of(std::as_bytes(std::span(own)))};
  Workers::Calls& calls = run_.calls();
  if (print_groups(calls.meet(call, std::as_bytes(std::span(all))), 0).empty()) return;
  const bool all_live = std::ranges::find(calls.present(), false) == calls.present().end();
  if (refused == Differences::where_all_live && !all_live) return;
  const auto rows = calls.gather(call, std::as_bytes(std::span(own)));
  for (std::size_t i = 0; i < own.size(); ++i)
    if (const std::string groups = print_groups(rows, i * sizeof(std::uint64_t)); !groups.empty())
      throw Error(fmt::format(
          "{}: the workers' models differ after step {}: parameter '{}' has {}. An optimizer of "
          "the "
          "program's own, or a write to parameters on some workers only, does that: expected "
          "step() to make all updates, and the same writes on all workers",
          call, run_.worker().progress.steps, name_of_digest(i), groups));
}

void Replicas::verify() {
  if (run_.strategy().waits_for_reads()) run_.flush();
  compare("verify()");
  run_.after_flush();
}

void Distributed::verify() {
  const Workers::Calls::Scope call(impl_->calls(), "run.verify()");
  flush();
  impl_->replicas().compare("verify()");
  impl_->after_flush();
}

}  // namespace skein
