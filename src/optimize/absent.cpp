#include "optimize/absent.h"

#include "optimize/owned_state.h"

namespace skein {
namespace {

class AbsentOptimizer final : public Optimizer {
 public:
  explicit AbsentOptimizer(std::size_t size) : state_(size, {}) {}

  void update(Range range, Span, Span, const UpdateContext&) override {
    state_.split(range, [](Range, Range) {});
  }
  OwnedState& owned_state() override { return state_; }

 private:
  OwnedState state_;
};

}  // namespace

std::unique_ptr<Optimizer> make_absent(std::size_t size) {
  return std::make_unique<AbsentOptimizer>(size);
}

}  // namespace skein
