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
  void own(std::vector<Range> ranges) override { state_.own(std::move(ranges)); }
  const std::vector<Range>& owned() const override { return state_.owned(); }
  std::map<std::string, Span> state() override { return {}; }

 private:
  OwnedState state_;
};

}  // namespace

std::unique_ptr<Optimizer> make_absent(std::size_t size) {
  return std::make_unique<AbsentOptimizer>(size);
}

}  // namespace skein
