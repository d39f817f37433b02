// The fabric of a world of one: there is nobody to talk to.
#pragma once

#include "fabric/fabric.h"

namespace skein {

class AloneFabric final : public Fabric {
 public:
  using Fabric::Fabric;
  std::string name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
};

}  // namespace skein
