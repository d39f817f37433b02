// CUDA graphs of what torch computes.
#include "torch/torch_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <fmt/format.h>

#include <exception>

#include "skein/error.h"

namespace skein {
namespace {

using PoolId = decltype(at::cuda::graph_pool_handle());

class Recorded final : public TorchGraphs::Graph {
 public:
  Recorded(PoolId pool, const std::function<void()>& work) {
    graph_.capture_begin(pool);
    try {
      work();
    } catch (const std::exception& error) {
      const std::string why = error.what();
      end_in_vain();
      throw Error(fmt::format("a step cannot be recorded as a CUDA graph: {}", why));
    }
    graph_.capture_end();
  }

  void play() override { graph_.replay(); }

 private:
  void end_in_vain() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // what was recorded is of no use: that is known
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

struct TorchGraphs::Pool {
  PoolId id = at::cuda::graph_pool_handle();
};

TorchGraphs::TorchGraphs() : pool_(std::make_unique<Pool>()) {}
TorchGraphs::~TorchGraphs() = default;

std::unique_ptr<TorchGraphs::Graph> TorchGraphs::record(const std::function<void()>& work) {
  return std::make_unique<Recorded>(pool_->id, work);
}

}  // namespace skein
