#include "torch/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "skein/error.h"
#include "test_net.h"
#include "torch/binding.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::EveryLayer;
using test::message_of;
using test::Names;
using test::names_of;
using test::Tied;

class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    std::string pattern = (fs::temp_directory_path() / "skein-safetensors-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    path = folder / "model.safetensors";
  }
  ~Safetensors() override { fs::remove_all(folder); }

  std::string bytes() const {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  void put(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }

  // A file with this header and as many bytes of data.
  void put(const std::string& header, std::size_t data) const {
    std::uint64_t length = header.size();
    std::string text(reinterpret_cast<const char*>(&length), sizeof length);
    put(text + header + std::string(data, '\1'));
  }
  std::string error_of_reading() const {
    return message_of<ConfigError>([&] { read_safetensors(path); });
  }
  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  fs::path folder, path;
};

TEST_F(Safetensors, RoundTripsEveryDtypeAndShape) {
  std::vector<NamedTensor> tensors;
  for (const auto type :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
        torch::kBFloat16, torch::kFloat16, torch::kFloat32, torch::kFloat64}) {
    const std::string name = c10::toString(type);
    tensors.push_back({name, torch::arange(-3, 4).to(type)});
    tensors.push_back({name + ".scalar", torch::ones({}, type)});
    tensors.push_back({name + ".empty", torch::ones({2, 0, 3}, type)});
    tensors.push_back({name + ".strided", torch::arange(12).to(type).reshape({3, 4}).t()});
  }
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"quote", "\"ä\"\n"}};
  write_safetensors(path, tensors, metadata);

  const SafeTensors file = read_safetensors(path);
  EXPECT_EQ(file.metadata, metadata);
  EXPECT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor* found = file.find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(*found, tensor)) << name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(files_in_folder(), 1U);
}

// In whatever pieces the values come, the file is that of the tensors.
TEST_F(Safetensors, AStreamedFileHasTheBytesOfTheWholeOne) {
  const torch::Tensor a = torch::randn({5, 3}), b = torch::randn({0, 4}), c = torch::randn({});
  const FileSum whole = write_safetensors(path, {{"a", a}, {"b", b}, {"c", c}});
  const std::string expected = bytes();
  fs::remove(path);
  const auto part = [](const torch::Tensor& tensor, std::size_t first, std::size_t count) {
    return Span{tensor.data_ptr<float>() + first, count};
  };
  const FileSum streamed = stream_safetensors(path, {{"a", {5, 3}}, {"b", {0, 4}}, {"c", {}}},
                                              [&](const WriteValues& write) {
                                                write(part(a, 0, 4));
                                                write(part(a, 4, 0));
                                                write(part(a, 4, 11));
                                                write(part(c, 0, 1));
                                              });
  EXPECT_EQ(bytes(), expected);
  EXPECT_EQ(streamed.crc32c, whole.crc32c);
  EXPECT_EQ(streamed.bytes, whole.bytes);
  EXPECT_THROW(stream_safetensors(path, {{"a", {1}}},
                                  [](const WriteValues&) { throw Error("the sender is gone"); }),
               Error);
  EXPECT_EQ(bytes(), expected) << "a stream that broke off leaves what was there";
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Safetensors, PartsOfAFileAreReadByThemselves) {
  const torch::Tensor a = torch::randn({5, 3}), b = torch::arange(4);
  write_safetensors(path, {{"a", a}, {"b", b}});
  const SafeTensorsFile file(path);
  EXPECT_TRUE(file.has("a", {5, 3}));
  EXPECT_FALSE(file.has("a", {3, 5}));
  EXPECT_FALSE(file.has("b", {4})) << "of another type";
  EXPECT_FALSE(file.has("c", {}));
  std::vector<float> values(7, -1);
  file.read("a", 4, {values.data() + 1, 5});
  EXPECT_EQ(values.front(), -1);
  EXPECT_EQ(values.back(), -1);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(values[i + 1], a.data_ptr<float>()[i + 4]);
  put(bytes().substr(0, bytes().size() - 1));
  EXPECT_THROW(SafeTensorsFile{path}, ConfigError);
}

TEST_F(Safetensors, WritesTheOfficialFormat) {
  write_safetensors(
      path, {{"b", torch::tensor({1, 2, 3}, torch::kUInt8)}, {"a", torch::full({1, 2}, 1.F)}},
      {{"k", "v"}});
  std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string length{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  const std::string one("\0\0\x80\x3f", 4);
  EXPECT_EQ(bytes(), length + header + one + one + "\1\2\3");
}

TEST_F(Safetensors, ReadsUnpaddedFilesWithEntriesInAnyOrder) {
  put(R"({"z":{"data_offsets":[4,8],"shape":[1],"dtype":"I32"},)"
      R"("y":{"dtype":"BOOL","shape":[2,2],"data_offsets":[0,4]}})",
      8);
  const SafeTensors file = read_safetensors(path);
  EXPECT_EQ(names_of(file.tensors), (Names{"y", "z"}));
  EXPECT_EQ(file.find("z")->item<int>(), 0x01010101);
  put("{}", 0);
  EXPECT_TRUE(read_safetensors(path).tensors.empty());
}

TEST_F(Safetensors, RefusesATruncatedFileAtEveryLength) {
  write_safetensors(path, {{"a", torch::arange(5)}, {"b", torch::ones({3})}});
  const std::string whole = bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    EXPECT_TRUE(contains(error_of_reading(), {path.string(), "at byte"})) << length;
  }
  put(whole + "x");
  EXPECT_TRUE(contains(error_of_reading(), {"expected"}));
}

TEST_F(Safetensors, RefusesMalformedHeaders) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[]", "JSON object"},
      {"{", "header in JSON"},
      {R"({"t":1})", "expected an object"},
      {R"({"t":{}})", "dtype null; expected F64"},
      {tensor(R"("F31")", "[1]", "[0,4]"), "dtype \"F31\""},
      {tensor(R"("F32")", "[-1]", "[0,4]"), "shape [-1]"},
      {tensor(R"("F32")", "[1.5]", "[0,4]"), "shape [1.5]"},
      {tensor(R"("F32")", "[1]", "[0]"), "data_offsets [0]"},
      {tensor(R"("F32")", "[1]", "[4,0]"), "data_offsets [4,0]"},
      {tensor(R"("F32")", "[2]", "[0,4]"), "expected 8"},
      {tensor(R"("F32")", "[1]", "[4,8]"), "starts at data offset 4; expected 0"},
      {tensor(R"("F32")", "[2]", "[0,8]"), "holds 4 bytes of data; expected 8"},
      {tensor(R"("U8")", "[0,4611686018427387904,4611686018427387904]", "[0,0]"), "too many"},
      {tensor(R"("U8")", "[4294967296,4294967296,4]", "[0,0]"), "too many"},
      {R"({"__metadata__":{"a":1}})", "expected a string as __metadata__ 'a'"},
      {R"({"__metadata__":[]})", "expected an object as __metadata__"},
      {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("u":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
       "starts at data offset 1; expected 2"},
      {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("t":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "\"t\" appears twice"}};
  for (const auto& [header, expected] : cases) {
    put(header, 4);
    EXPECT_TRUE(contains(error_of_reading(), {path.string(), expected})) << header;
  }
}

TEST_F(Safetensors, RefusesAHeaderLengthBeyondFileOrLimit) {
  put(std::string(8, '\xff') + "{}");
  EXPECT_TRUE(contains(error_of_reading(), {"a header of 18446744073709551615 bytes"}));
  put(std::string("\0\0\0\x10\0\0\0\0", 8));  // 256 MiB, sparse
  fs::resize_file(path, 300'000'000);
  EXPECT_TRUE(contains(error_of_reading(), {"expected at most 100000000"}));
}

TEST_F(Safetensors, RefusesMissingFilesAndFolders) {
  EXPECT_TRUE(contains(error_of_reading(), {path.string(), "No such file"}));
  path = folder;
  EXPECT_TRUE(contains(error_of_reading(), {"not a file"}));
}

TEST_F(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const auto error_of_writing = [&](std::vector<NamedTensor> tensors) {
    return message_of<ConfigError>([&] { write_safetensors(path, tensors); });
  };
  const auto one = torch::ones({1});
  EXPECT_TRUE(contains(error_of_writing({{"c", torch::ones({1}, torch::kComplexFloat)}}),
                       {"'c'", "ComplexFloat"}));
  EXPECT_TRUE(contains(error_of_writing({{"a", one}, {"a", one}}), {"'a' is given twice"}));
  EXPECT_TRUE(contains(error_of_writing({{"__metadata__", one}}), {"reserved"}));
  EXPECT_TRUE(contains(error_of_writing({{"u", torch::Tensor()}}), {"undefined"}));
  EXPECT_TRUE(contains(error_of_writing({{"\xff", one}}), {"UTF-8"}));
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(Safetensors, LeavesTheOldFileWhenWritingFails) {
  write_safetensors(path, {{"a", torch::ones({1})}});
  const std::string before = bytes();

  // A limit on the size of files stands in for a full disk.
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<Error>([&] {
    write_safetensors(path, {{"a", torch::ones({10000})}});
  });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_TRUE(contains(message, {path.string(), "File too large"}));
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(Safetensors, SaysWhyAFileCannotBeCreatedOrNamed) {
  const std::vector<NamedTensor> tensors{{"a", torch::ones({1})}};
  EXPECT_TRUE(
      contains(message_of<Error>([&] { write_safetensors(folder / "absent" / "m", tensors); }),
               {"absent/m", "No such file or directory"}));
  fs::create_directory(path);
  EXPECT_TRUE(contains(message_of<Error>([&] { write_safetensors(path, tensors); }),
                       {path.string(), "Is a directory"}));
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(Safetensors, AModuleComesBackWithTheSameBits) {
  EveryLayer net, other;
  for (int step = 0; step < 3; ++step) test::loss_at(net, step);  // moves batch statistics
  write_safetensors(path, tensors_of(*net));

  Binding binding(*other, allocate_on_heap);
  load_into_module(*other, read_safetensors(path));
  EXPECT_EQ(other->conv->weight.data_ptr(), binding.arena().parameters().data);  // still bound
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    EXPECT_TRUE(torch::equal(net->parameters()[i], other->parameters()[i]));
  EXPECT_TRUE(torch::equal(net->norm->running_var, other->norm->running_var));
  EXPECT_EQ(other->norm->num_batches_tracked.item<int>(), 3);
  net->eval();
  other->eval();
  EXPECT_EQ(test::loss_at(net, 5).item<float>(), test::loss_at(other, 5).item<float>());
}

TEST_F(Safetensors, TiedWeightsAreSavedOnceAndFillBoth) {
  Tied net, other;
  EXPECT_EQ(names_of(tensors_of(*net)), (Names{"encoder", "bias"}));
  write_safetensors(path, tensors_of(*net));
  load_into_module(*other, read_safetensors(path));
  EXPECT_TRUE(torch::equal(other->decoder, net->encoder));

  // Another program may have kept the other name.
  load_into_module(*other, {{{"decoder", torch::ones({4, 4})}, {"bias", torch::ones({4})}}, {}});
  EXPECT_TRUE(torch::equal(other->encoder, torch::ones({4, 4})));
}

TEST_F(Safetensors, LoadingListsEveryDifferenceAndChangesNothing) {
  torch::nn::Linear net(3, 2);
  const auto bias = net->bias.detach().clone();
  const SafeTensors file{{{"weight", torch::ones({2, 4})}, {"extra", torch::ones({1})}}, {}};
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { load_into_module(*net, file); }),
                       {"'weight' is Float [2, 4]; expected Float [2, 3]", "missing: 'bias'",
                        "unexpected: 'extra'"}));
  const SafeTensors half{{{"weight", torch::ones({2, 3}, torch::kHalf)}, {"bias", bias + 1}}, {}};
  EXPECT_TRUE(contains(message_of<ConfigError>([&] { load_into_module(*net, half); }),
                       {"'weight' is Half"}));
  EXPECT_TRUE(torch::equal(net->bias, bias));
}

}  // namespace
}  // namespace skein
