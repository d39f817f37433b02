// The fabrics that there are: what --fabric and JoinOptions::fabric may name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "launch/environment.h"
#include "skein/world.h"

namespace skein {

struct FabricKind {
  std::string name;
  std::string joins;    // whom it joins, in a few words
  std::string missing;  // why it is not in this build, and how to get it; empty: it is

  // Blocks until all workers are there. Only called when there are several.
  std::unique_ptr<Fabric> (*make)(Loop& loop, const JoinOptions& options,
                                  const Placement& placement);
};

// All of them, those that are not in this build included.
const std::vector<FabricKind>& fabric_kinds();

// The names of those that are in this build, and of those that are not.
std::vector<std::string> fabric_names();
std::vector<std::string> absent_fabric_names();

// "local (processes of one host), …": those in this build.
std::string describe_fabrics();

// Throws ConfigError unless a fabric of that name is in this build.
void check_fabric(const std::string& name);

// The fabric that `options` name, or that of a world of one. Throws ConfigError where the options
// or the workers' places do not suit it, IoError when a worker does not come.
std::unique_ptr<Fabric> make_fabric(Loop& loop, const JoinOptions& options,
                                    const Placement& placement);

}  // namespace skein
