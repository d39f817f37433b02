// What `skein advise` prints and writes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"
#include "advise/map.h"
#include "cli/measure_cluster.h"

namespace skein {

// An advice with the commands that follow from it.
struct AdviceReport {
  const advise::Advice& advice;
  advise::Effort effort;
  std::string command;    // skein train …, ready to be typed
  std::string rehearsal;  // the same on one host that is made to behave like the cluster, or ""
  std::string note;       // about the command, or ""
  bool measured = false;  // the cluster was
  std::vector<MeasuredLink> links;  // where it was
  std::optional<advise::Map> map;

  std::string text() const;  // for people, without the map
  nlohmann::json json() const;
};

// "skein train --workers 4 …", with quotes where a shell needs them.
std::string train_command(const std::vector<std::string>& options, const advise::Setup& setup);

// The options that make one host behave like the cluster; none where workers share hosts.
std::vector<std::string> rehearsal_options(const sim::Scenario& cluster);

}  // namespace skein
