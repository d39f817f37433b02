#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/file_descriptor.h"
#include "skein/error.h"
#include "torch/safetensors.h"
#include "torch/safetensors_format.h"

namespace skein {
namespace safetensors {

// An open file that knows its size; reads what it was told is there, or says why not.
class Input {
 public:
  explicit Input(const std::filesystem::path& path)
      : path_(path.string()), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status = {};
    if (!file_.valid() || ::fstat(file_.get(), &status) != 0)
      throw ConfigError(fmt::format("cannot read '{}': {}", path_, std::strerror(errno)));
    if (!S_ISREG(status.st_mode))
      throw ConfigError(fmt::format("cannot read '{}': not a file", path_));
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  std::uint64_t size() const { return size_; }

  void read(std::uint64_t offset, void* data, std::uint64_t bytes) const {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = ::pread(file_.get(), next, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(offset, std::strerror(errno));
      if (got == 0) fail(offset, fmt::format("the file ends; expected {} bytes more", bytes));
      next += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::uint64_t>(got);
    }
  }

  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const {
    throw ConfigError(
        fmt::format("'{}' is not a sound safetensors file: at byte {}: {}", path_, offset, what));
  }

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

struct Entry {
  std::string name;
  torch::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end;
};

// What a file's header says.
struct Contents {
  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;  // in the order of their data
  std::uint64_t data_start = 0;
};

}  // namespace safetensors

namespace {

using namespace safetensors;
using nlohmann::json;

json read_header(const Input& input, std::uint64_t& data_start) {
  if (input.size() < kLengthBytes)
    input.fail(0, fmt::format("the file has {} bytes; expected the header's length in {}",
                              input.size(), kLengthBytes));
  std::uint64_t length = 0;
  input.read(0, &length, sizeof length);
  const std::uint64_t limit = std::min(kMaxHeaderBytes, input.size() - kLengthBytes);
  if (length > limit)
    input.fail(0, fmt::format("a header of {} bytes; expected at most {}", length, limit));
  data_start = kLengthBytes + length;

  std::string text(length, '\0');
  input.read(kLengthBytes, text.data(), length);
  // The parser would silently keep the last of two equal names.
  std::set<std::string> names;
  const auto refuse_twice = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second)
      input.fail(kLengthBytes, fmt::format("the name {} appears twice", parsed.dump()));
    return true;
  };
  try {
    json header = json::parse(text, refuse_twice);
    if (!header.is_object()) input.fail(kLengthBytes, "expected a JSON object");
    return header;
  } catch (const json::parse_error& error) {
    input.fail(kLengthBytes + std::max<std::size_t>(error.byte, 1) - 1,
               fmt::format("expected a header in JSON: {}", error.what()));
  }
}

std::map<std::string, std::string> parse_metadata(const Input& input, const json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) input.fail(kLengthBytes, "expected an object as __metadata__");
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string())
      input.fail(kLengthBytes, fmt::format("expected a string as __metadata__ '{}'", key));
    metadata[key] = item.get<std::string>();
  }
  return metadata;
}

bool is_list_of_counts(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& item) {
           return item.is_number_unsigned() &&
                  item.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
         });
}

Entry parse_entry(const Input& input, const std::string& name, const json& value) {
  const auto fail = [&](const std::string& what) {
    input.fail(kLengthBytes, fmt::format("tensor '{}': {}", name, what));
  };
  if (!value.is_object()) fail("expected an object {dtype, shape, data_offsets}");
  const json dtype = value.value("dtype", json()), shape = value.value("shape", json()),
             offsets = value.value("data_offsets", json());
  const auto known = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) {
    return dtype.is_string() && d.name == dtype.get_ref<const std::string&>();
  });
  if (known == kDtypes.end()) fail(fmt::format("dtype {}; expected {}", dtype.dump(), kDtypeNames));
  if (!is_list_of_counts(shape))
    fail(fmt::format("shape {}; expected a list of counts", shape.dump()));
  if (!is_list_of_counts(offsets) || offsets.size() != 2 || offsets[0] > offsets[1])
    fail(fmt::format("data_offsets {}; expected [begin, end]", offsets.dump()));

  Entry entry{name, known->type, shape.get<std::vector<std::int64_t>>(),
              offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
  std::uint64_t bytes = c10::elementSize(entry.type), largest = bytes;
  for (const std::int64_t count : entry.shape) {
    bytes *= static_cast<std::uint64_t>(count);
    // An empty tensor, too, has strides that must not overflow.
    if (__builtin_mul_overflow(
            largest, static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)), &largest) ||
        largest > std::numeric_limits<std::int64_t>::max())
      fail(fmt::format("shape {} has too many elements", shape.dump()));
  }
  if (bytes != entry.end - entry.begin)
    fail(fmt::format("data_offsets {} hold {} bytes; expected {} for {} of shape {}",
                     offsets.dump(), entry.end - entry.begin, bytes, known->name, shape.dump()));
  return entry;
}

// The format allows no gap, no overlap and nothing after the last tensor.
void check_coverage(const Input& input, std::uint64_t data_start, std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected)
      input.fail(data_start + entry.begin,
                 fmt::format("tensor '{}' starts at data offset {}; expected {}, where the one "
                             "before it ends",
                             entry.name, entry.begin, expected));
    expected = entry.end;
  }
  if (expected != input.size() - data_start)
    input.fail(data_start, fmt::format("the file holds {} bytes of data; expected {}",
                                       input.size() - data_start, expected));
}

Contents read_contents(const Input& input) {
  Contents contents;
  const json header = read_header(input, contents.data_start);
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata)
      contents.metadata = parse_metadata(input, value);
    else
      contents.entries.push_back(parse_entry(input, name, value));
  }
  check_coverage(input, contents.data_start, contents.entries);
  return contents;
}

}  // namespace

SafeTensors read_safetensors(const std::filesystem::path& path) {
  const Input input(path);
  Contents contents = read_contents(input);
  SafeTensors file;
  file.metadata = std::move(contents.metadata);
  for (const Entry& entry : contents.entries) {
    torch::Tensor tensor = torch::empty(entry.shape, torch::TensorOptions().dtype(entry.type));
    input.read(contents.data_start + entry.begin, tensor.data_ptr(), entry.end - entry.begin);
    file.tensors.push_back({entry.name, std::move(tensor)});
  }
  return file;
}

struct SafeTensorsFile::Inside {
  explicit Inside(const std::filesystem::path& path) : input(path), contents(read_contents(input)) {
    for (const Entry& entry : contents.entries) by_name[entry.name] = &entry;
  }
  const Entry* find(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  }

  Input input;
  Contents contents;
  std::map<std::string, const Entry*> by_name;
};

SafeTensorsFile::SafeTensorsFile(const std::filesystem::path& path)
    : inside_(std::make_unique<Inside>(path)) {}
SafeTensorsFile::SafeTensorsFile(SafeTensorsFile&&) noexcept = default;
SafeTensorsFile::~SafeTensorsFile() = default;

bool SafeTensorsFile::has(const std::string& name, c10::IntArrayRef sizes) const {
  const Entry* entry = inside_->find(name);
  return entry != nullptr && entry->type == torch::kFloat32 && sizes == entry->shape;
}

void SafeTensorsFile::read(const std::string& name, std::size_t first, Span into) const {
  const Entry* entry = inside_->find(name);
  SKEIN_CHECK(entry != nullptr && (first + into.count) * sizeof(float) <= entry->end - entry->begin,
              "elements [{}, +{}) of '{}' are not there", first, into.count, name);
  inside_->input.read(inside_->contents.data_start + entry->begin + first * sizeof(float),
                      into.data, into.bytes());
}

const torch::Tensor* SafeTensors::find(const std::string& name) const {
  for (const NamedTensor& named : tensors)
    if (named.name == name) return &named.tensor;
  return nullptr;
}

}  // namespace skein
