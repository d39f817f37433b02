#include "launch/local_group.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/check.h"

namespace skein {

LocalGroup::LocalGroup(WorkerPlan plan)
    : plan_(std::move(plan)), board_(Board::create(plan_.size)) {
  SKEIN_CHECK(plan_.workers > 0 && plan_.first_rank >= 0 &&
                  plan_.first_rank + plan_.workers <= plan_.size && !plan_.argv.empty(),
              "ranks {} to {} of {}", plan_.first_rank, plan_.first_rank + plan_.workers - 1,
              plan_.size);
  if (!plan_.secret.empty()) secret_.emplace(plan_.secret);
}

std::vector<std::string> LocalGroup::environment(int rank) const {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (char* equals = std::strchr(*entry, '='))
      out.emplace(std::string(*entry, equals), equals + 1);
  // One thread per worker: with more, the workers of one host would fight for its cores.
  out.emplace("OMP_NUM_THREADS", "1");
  out.emplace("OPENBLAS_NUM_THREADS", "1");
  if (!plan_.rendezvous.empty())  // what is shown there is the launcher's choice
    for (const char* name :
         {"SKEIN_SECRET_FILE", "SKEIN_TLS_CERT", "SKEIN_TLS_KEY", "SKEIN_TLS_CA"})
      out.erase(name);
  for (const auto& [name, value] : plan_.environment) out[name] = value;
  out["SKEIN_RANK"] = std::to_string(rank);
  out["SKEIN_SIZE"] = std::to_string(plan_.size);
  out["SKEIN_LOCAL_RANK"] = std::to_string(index(rank));
  out["SKEIN_LOCAL_SIZE"] = std::to_string(plan_.workers);
  out["SKEIN_RUN"] = plan_.run_id;
  out["SKEIN_BOARD"] = std::to_string(board_.descriptor());
  if (!plan_.rendezvous.empty()) out["SKEIN_RENDEZVOUS"] = plan_.rendezvous;
  if (secret_) out["SKEIN_SECRET_FILE"] = secret_->path();

  std::vector<std::string> lines;
  lines.reserve(out.size());
  for (const auto& [name, value] : out) lines.push_back(fmt::format("{}={}", name, value));
  return lines;
}

void LocalGroup::start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) {
  SKEIN_CHECK(index(rank) == crew_.size(), "rank {} after {} of {}", rank, crew_.size(),
              plan_.workers);
  WorkerStart how;
  how.argv = plan_.argv;
  how.environment = environment(rank);
  how.input = streams.input;
  how.output = streams.output;
  how.error = streams.error;
  how.keep_open = {board_.descriptor()};
  if (secret_) how.keep_open.push_back(secret_->descriptor());
  how.signal_mask = signal_mask;
  crew_.start(how);
}

void LocalGroup::watch(std::vector<pollfd>& watched) const {
  for (int each = 0; each < crew_.size(); ++each)
    watched.push_back({crew_.descriptor(each), POLLIN, 0});  // -1 is skipped by poll
}

std::optional<WorkerEnd> LocalGroup::reap(int rank) {
  if (index(rank) >= crew_.size()) return std::nullopt;
  return crew_.reap(index(rank));
}

}  // namespace skein
