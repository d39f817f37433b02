// Gloo over TCP on the loopback device, as PyTorch's DistributedDataParallel uses it on CPUs.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <vector>

#include "rival.h"

namespace skein::bench {
namespace {

class Gloo final : public Rival {
 public:
  Gloo(int rank, int size, const std::string& folder) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  std::string name() const override { return "Gloo"; }

  void prepare(float* data, std::size_t count) override {
    data_ = data;
    count_ = count;
    // The only reduce-scatter that Gloo has; it keeps its own buffers, so it is made once per size.
    const std::vector<int> shares(static_cast<std::size_t>(context_->size),
                                  static_cast<int>(count) / context_->size);
    scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{data}, static_cast<int>(count), shares);
  }

  void all_reduce() override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data_, count_);
    using Sum = void (*)(void*, const void*, const void*, std::size_t);
    options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  void reduce_scatter_and_all_gather() override {
    scatter_->run();
    gloo::AllgatherOptions options(context_);
    options.setOutput(data_, count_);
    gloo::allgather(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  float* data_ = nullptr;
  std::size_t count_ = 0;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
};

}  // namespace

std::unique_ptr<Rival> make_gloo(int rank, int size, const std::string& folder) {
  return std::make_unique<Gloo>(rank, size, folder);
}

}  // namespace skein::bench
