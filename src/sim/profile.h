// What one worker's computation costs, layer by layer: the compute model of the virtual cluster.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"

namespace skein::sim {

// What forward runs as one piece, in the order of forward; backward runs the pieces in reverse. The
// gradients of a layer's tensors are complete when its backward ends.
struct Layer {
  std::string name;
  std::vector<std::int64_t> parameters;  // elements of each tensor; may be empty
  Duration forward{}, backward{};        // of one micro-batch
};

struct Profile {
  std::string name;
  std::string source;      // where the times come from, for people
  std::int64_t batch = 1;  // samples of the micro-batch that the times are for
  std::vector<Layer> layers;
  Duration update{};  // one optimizer step over all parameters

  std::int64_t parameters() const;  // elements of all tensors
  std::int64_t tensors() const;
  Duration forward() const;  // of all layers
  Duration backward() const;
};

// The profile in a JSON file as written by write_profile(). Throws ConfigError that names the file,
// the place in it, and what was expected there.
Profile read_profile(const std::filesystem::path& path);

// The file appears whole or not at all. Throws Error.
void write_profile(const std::filesystem::path& path, const Profile& profile);

// Models whose tensors are generated from their architecture and whose times are a published
// measurement on one GPU (RTX 2080 Ti), split over the layers by their arithmetic.
std::vector<std::string> builtin_profile_names();

// A built-in profile by name, else the profile in the file of that name. Throws ConfigError that
// lists the names.
Profile find_profile(const std::string& name_or_path);

}  // namespace skein::sim
