// Tensors in files of the safetensors format, as other programs read and write it.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "core/span.h"
#include "torch/named_tensor.h"

namespace skein {

struct SafeTensors {
  std::vector<NamedTensor> tensors;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;

  const torch::Tensor* find(const std::string& name) const;  // null when there is none
};

// Writes `tensors` (dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL, any device, any strides). The
// file appears, whole, when all of it is on the disk; on failure nothing is left and Error names
// the path and the reason. ConfigError for other dtypes and for names that are reserved or given
// twice. Returns the checksum of what was written.
FileSum write_safetensors(const std::filesystem::path& path,
                          const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata = {});

// Throws the ConfigErrors of write_safetensors(), and writes nothing.
void check_writable(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

// The same for float32 tensors whose data come while they are written: `write_data` calls
// `write(values)` for all elements of all tensors in their order, in any pieces.
struct TensorShape {
  std::string name;
  std::vector<std::int64_t> sizes;
};
using WriteValues = std::function<void(Span values)>;
FileSum stream_safetensors(const std::filesystem::path& path,
                           const std::vector<TensorShape>& tensors,
                           const std::function<void(const WriteValues& write)>& write_data);

// Reads the whole file into memory of its own. ConfigError, with the file, the place and what was
// expected there, for a file that is missing, truncated or malformed in any way.
SafeTensors read_safetensors(const std::filesystem::path& path);

// A file of which parts are read when they are asked for. Opens and checks it as read_safetensors.
class SafeTensorsFile {
 public:
  explicit SafeTensorsFile(const std::filesystem::path& path);
  SafeTensorsFile(SafeTensorsFile&&) noexcept;
  ~SafeTensorsFile();

  // Whether it has a float32 tensor of that name and shape.
  bool has(const std::string& name, c10::IntArrayRef sizes) const;

  // Reads its elements from `first` on. Requires has() and that there are so many.
  void read(const std::string& name, std::size_t first, Span into) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

// The state of a module as it is saved: parameters, then buffers; each tensor once, under its first
// name. The tensors alias the module's.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

// Copies values into the module's tensors in place (bound ones stay bound). The file must hold
// every tensor of the module, of the same shape and dtype, under one of its names, and nothing
// else: ConfigError lists all differences, and then the module is unchanged.
void load_into_module(torch::nn::Module& module, const SafeTensors& file);

// Throws that ConfigError, and copies nothing.
void check_fits(torch::nn::Module& module, const SafeTensors& file);

}  // namespace skein
