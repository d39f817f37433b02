// What all workers of a run must have in common, compared before they train together.
#pragma once

#include <string>
#include <vector>

#include "skein/world.h"

namespace torch::nn {
class Module;
}

namespace skein {

struct Fact {
  std::string what;   // a noun: "learning rate"
  std::string value;  // "0.1"
};
using Facts = std::vector<Fact>;

// Names, shapes, types and order of the module's parameters and buffers.
Facts facts_of(const torch::nn::Module& module);

// Returns when all workers have the same facts; else throws, on all of them, a ConfigError that
// says which facts differ, what they are and on which ranks. A worker that has no facts because it
// failed says why in `failure`; then the others learn that and nothing is thrown on this one. All
// workers call it.
void agree(World& world, const Facts& facts, const std::string& failure);

}  // namespace skein
