// The words of the safetensors format that its reader and writer share.
//
// A file is: the header's length (8 bytes, little-endian), the header (JSON, padded with spaces),
// the tensors' bytes. The header maps each name to {dtype, shape, data_offsets: [begin, end)},
// offsets counted from the end of the header, and "__metadata__" to a map of strings.
#pragma once

#include <torch/torch.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

namespace skein::safetensors {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kAlignment = 8;

struct Dtype {
  std::string_view name;
  torch::ScalarType type;
};

constexpr std::array kDtypes{Dtype{"F64", torch::kFloat64}, Dtype{"F32", torch::kFloat32},
                             Dtype{"F16", torch::kFloat16}, Dtype{"BF16", torch::kBFloat16},
                             Dtype{"I64", torch::kInt64},   Dtype{"I32", torch::kInt32},
                             Dtype{"I16", torch::kInt16},   Dtype{"I8", torch::kInt8},
                             Dtype{"U8", torch::kUInt8},    Dtype{"BOOL", torch::kBool}};
constexpr std::string_view kDtypeNames = "F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL";

}  // namespace skein::safetensors
