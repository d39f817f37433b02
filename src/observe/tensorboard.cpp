#include "skein/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/checksum.h"
#include "core/field_names.h"
#include "core/file_descriptor.h"
#include "skein/error.h"

namespace skein {
namespace {

template <typename Integer>
void put_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// The few kinds of Protocol Buffers fields that an Event has.
class ProtoMessage {
 public:
  ProtoMessage& varint(int field, std::uint64_t value) {
    put(static_cast<std::uint64_t>(field) << 3);
    put(value);
    return *this;
  }
  ProtoMessage& float64(int field, double value) {
    put(static_cast<std::uint64_t>(field) << 3 | 1);
    put_little_endian(text_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoMessage& float32(int field, float value) {
    put(static_cast<std::uint64_t>(field) << 3 | 5);
    put_little_endian(text_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  ProtoMessage& bytes(int field, std::string_view value) {
    put(static_cast<std::uint64_t>(field) << 3 | 2);
    put(value.size());
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void put(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

// TFRecord's: a sum of sums would be no sum, so they are disguised.
std::uint32_t masked_sum(std::string_view data) {
  Checksum checksum;
  checksum.add(data.data(), data.size());
  const std::uint32_t crc = checksum.sum().crc32c;
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::string framed(std::string_view data) {
  std::string out;
  put_little_endian(out, static_cast<std::uint64_t>(data.size()));
  put_little_endian(out, masked_sum(out));
  out += data;
  put_little_endian(out, masked_sum(data));
  return out;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
ProtoMessage event(std::int64_t step) {
  ProtoMessage message;
  message.float64(1, unix_seconds()).varint(2, static_cast<std::uint64_t>(step));
  return message;
}

}  // namespace

class TensorBoardWriter::Impl {
 public:
  Impl(const std::string& folder, std::int64_t first_step) {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    path_ = std::filesystem::path(folder) /
            fmt::format("events.out.tfevents.{}.{}.{}.skein",
                        std::chrono::duration_cast<std::chrono::microseconds>(now).count(), host,
                        ::getpid());
    file_ = FileDescriptor(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.valid())
      throw Error(fmt::format("cannot open {}: {}", path_.string(), std::strerror(errno)));
    ProtoMessage first;
    first.float64(1, unix_seconds()).bytes(3, "brain.Event:2");
    std::string records = framed(first.text());
    if (first_step > 0) {  // SessionLog.status = START
      const ProtoMessage start = ProtoMessage().varint(1, 1);
      records += framed(event(first_step).bytes(7, start.text()).text());
    }
    write(records);
  }

  // summary.value 1: tag 1, simple_value 2.
  void scalar(const std::string& name, std::int64_t step, double value) {
    if (std::isnan(value)) return;
    const ProtoMessage point = ProtoMessage().bytes(1, name).float32(2, static_cast<float>(value));
    const ProtoMessage summary = ProtoMessage().bytes(1, point.text());
    write(framed(event(step).bytes(5, summary.text()).text()));
  }

 private:
  void write(const std::string& text) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return;
    throw Error(fmt::format("cannot write {}: {}", path_.string(),
                            written < 0 ? std::strerror(errno) : "the disk is full"));
  }

  std::filesystem::path path_;
  FileDescriptor file_;
};

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::int64_t first_step)
    : impl_(std::make_unique<Impl>(folder, first_step)) {}
TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&&) noexcept = default;
TensorBoardWriter& TensorBoardWriter::operator=(TensorBoardWriter&&) noexcept = default;
TensorBoardWriter::~TensorBoardWriter() = default;

void TensorBoardWriter::scalar(const std::string& name, std::int64_t step, double value) {
  impl_->scalar(name, step, value);
}

void TensorBoardWriter::write(const Record& record) {
  scalar(field::kLoss, record.step, record.loss);
  scalar(field::kSamplesPerSecond, record.step, record.samples_per_second);
  scalar(field::kIterationMs, record.step, record.step_ms);
  scalar(field::kExposedCommMs, record.step, record.exposed_comm_ms);
  scalar(field::kLearningRate, record.step, record.learning_rate);
  scalar(field::kConsensusDistance, record.step, record.consensus);
  for (const auto& [name, value] : record.more) scalar(name, record.step, value);
}

}  // namespace skein
