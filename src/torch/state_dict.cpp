#include "torch/state_dict.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <map>

#include "core/atomic_file.h"

namespace skein {
namespace {

// As torch::pickle_save() does it, but without TorchScript's names of types: torch.load() takes
// none of those from a file that it need not trust.
void pickle(const c10::IValue& value, const std::function<void(const char*, std::size_t)>& write) {
  std::string text;
  torch::jit::Pickler pickler(
      [&](const char* data, std::size_t bytes) { text.append(data, bytes); }, nullptr, nullptr,
      nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, std::size_t bytes) {
    write(static_cast<const char*>(data), bytes);
    return bytes;
  });
  archive.writeRecord("data.pkl", text.data(), text.size());
  const auto& tensors = pickler.tensorData();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    archive.writeRecord("data/" + std::to_string(i), tensors[i].data_ptr(), tensors[i].nbytes());
  archive.writeEndOfFile();
}

}  // namespace

bool is_state_dict(const std::filesystem::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth";
}

void write_state_dict(const std::filesystem::path& path, const torch::nn::Module& module,
                      const std::vector<NamedTensor>& tensors) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> values;
  for (const NamedTensor& each : tensors)
    values[each.name] = each.tensor.detach().to(torch::kCPU).contiguous();
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  std::map<const void*, torch::Tensor> known;
  const auto add = [&](const std::string& name, const torch::Tensor& live) {
    if (!live.defined()) return;
    const void* const same = live.unsafeGetTensorImpl();
    if (const auto value = values.find(name); value != values.end()) known[same] = value->second;
    dict.insert(name, known.at(same).clone());
  };
  for (const auto& each : module.named_parameters()) add(each.key(), each.value());
  for (const auto& each : module.named_buffers()) add(each.key(), each.value());
  AtomicFile file(path);
  pickle(c10::IValue(dict), [&](const char* data, std::size_t bytes) { file.write(data, bytes); });
  file.commit();
}

}  // namespace skein
