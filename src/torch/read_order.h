// In what order forward first reads the parameters.
#pragma once

#include <mutex>
#include <vector>

#include "torch/binding.h"
#include "torch/read_hook.h"

namespace skein {

// Observes, from its construction on, operators that read parameters with gradients enabled: not
// loading, nor evaluation. The binding must outlive it.
class ReadOrder {
 public:
  explicit ReadOrder(const Binding& binding);

  // What is read from now on does not count: backward begins.
  void stop() { hook_.deactivate(); }

  // All slots: those never read, in their present order, then the others in the order of their
  // first reads.
  std::vector<int> slots();

 private:
  void on_read(int slot);

  std::mutex mutex_;
  std::vector<int> order_;
  std::vector<bool> seen_;
  ReadHook hook_;
};

}  // namespace skein
