#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/atomic_file.h"
#include "core/check.h"
#include "core/queue.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "torch/safetensors.h"
#include "torch/safetensors_format.h"

namespace skein {
namespace {

using namespace safetensors;

std::string_view dtype_name(const std::filesystem::path& path, const NamedTensor& named) {
  const auto type = named.tensor.scalar_type();
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const Dtype& dtype) { return dtype.type == type; });
  if (found == kDtypes.end())
    throw ConfigError(fmt::format("cannot write '{}': tensor '{}' has dtype {}; expected {}",
                                  path.string(), named.name, c10::toString(type), kDtypeNames));
  return found->name;
}

void check_names(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::set<std::string_view> names{kMetadata};
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined())
      throw ConfigError(
          fmt::format("cannot write '{}': tensor '{}' is undefined", path.string(), named.name));
    if (!names.insert(named.name).second)
      throw ConfigError(fmt::format("cannot write '{}': the name '{}' is {}", path.string(),
                                    named.name,
                                    named.name == kMetadata ? "reserved" : "given twice"));
  }
}

// Names and shapes as JSON, padded so that the data that follows is aligned.
std::string header_text(const std::filesystem::path& path,
                        const std::vector<const NamedTensor*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::size_t offset = 0;
  for (const NamedTensor* named : tensors) {
    const std::size_t end = offset + named->tensor.nbytes();
    header[named->name] = {{"dtype", dtype_name(path, *named)},
                           {"shape", named->tensor.sizes().vec()},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error& error) {
    throw ConfigError(fmt::format("cannot write '{}': expected names and metadata in UTF-8: {}",
                                  path.string(), error.what()));
  }
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw ConfigError(fmt::format("cannot write '{}': a header of {} bytes; expected at most {}",
                                  path.string(), text.size(), kMaxHeaderBytes));
  return text;
}

void write_header(AtomicFile& file, const std::string& text) {
  const std::uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
}

// The values where they are, or in `copies` if that is on a device.
Span on_host(Span values, std::vector<float>& copies) {
  if (values.device.kind != Device::gpu) return values;
  copies.resize(values.count);
  const Span host{copies.data(), values.count};
  copy(host, values);
  current_queue()->finish();
  return host;
}

}  // namespace

void check_writable(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  check_names(path, tensors);
  for (const NamedTensor& named : tensors) dtype_name(path, named);
}

FileSum write_safetensors(const std::filesystem::path& path,
                          const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  check_names(path, tensors);
  // Larger elements first, so that each tensor starts at a multiple of its element's size.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return a->tensor.element_size() > b->tensor.element_size();
  });

  const std::string text = header_text(path, order, metadata);
  AtomicFile file(path);
  write_header(file, text);
  for (const NamedTensor* named : order) {
    const torch::Tensor bytes = named->tensor.detach().to(torch::kCPU).contiguous();
    file.write(bytes.data_ptr(), bytes.nbytes());
  }
  file.commit();
  return file.sum();
}

// A header needs tensors that have a shape, but no data.
FileSum stream_safetensors(const std::filesystem::path& path,
                           const std::vector<TensorShape>& tensors,
                           const std::function<void(const WriteValues& write)>& write_data) {
  std::vector<NamedTensor> shapes;
  std::size_t expected = 0, written = 0;
  for (const TensorShape& each : tensors) {
    shapes.push_back({each.name, torch::empty(each.sizes, torch::device(torch::kMeta))});
    expected += static_cast<std::size_t>(shapes.back().tensor.numel());
  }
  check_names(path, shapes);
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : shapes) order.push_back(&named);
  const std::string text = header_text(path, order, {});
  AtomicFile file(path);
  write_header(file, text);
  std::vector<float> copies;
  write_data([&](Span values) {
    const Span host = on_host(values, copies);
    file.write(host.data, host.bytes());
    written += values.count;
  });
  SKEIN_CHECK(written == expected, "{} values for {} of '{}'", written, expected, path.string());
  file.commit();
  return file.sum();
}

}  // namespace skein
