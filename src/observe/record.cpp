#include "skein/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/field_names.h"
#include "core/file_descriptor.h"
#include "observe/json_text.h"
#include "skein/error.h"
#include "skein/metrics_file.h"

namespace skein {

std::string Record::json() const {
  nlohmann::json line{{field::kKind, field::kStepKind},
                      {field::kStep, step},
                      {field::kSamples, samples},
                      {field::kSeconds, seconds}};
  const auto put = [&](const std::string& name, double value) {
    if (!std::isnan(value)) line[name] = value;
  };
  // Most of these are counts, which are exact up to there.
  constexpr double kMostWhole = 9007199254740992;
  for (const auto& [name, value] : more)
    if (value == std::trunc(value) && std::abs(value) <= kMostWhole)
      line[name] = static_cast<std::int64_t>(value);
    else
      put(name, value);
  put(field::kLoss, loss);
  put(field::kSamplesPerSecond, samples_per_second);
  put(field::kIterationMs, step_ms);
  put(field::kExposedCommMs, exposed_comm_ms);
  put(field::kLearningRate, learning_rate);
  put(field::kConsensusDistance, consensus);
  return text_of(line);
}

class MetricsWriter::Impl {
 public:
  explicit Impl(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
    if (!file_.valid()) throw Error(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    char last = '\n';
    if (end > 0 && ::pread(file_.get(), &last, 1, end - 1) == 1 && last != '\n') append("\n");
  }

  void append(const std::string& text) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return;
    throw Error(fmt::format("cannot write {}: {}", path_,
                            written < 0 ? std::strerror(errno) : "the disk is full"));
  }

 private:
  const std::string path_;
  const FileDescriptor file_;
};

MetricsWriter::MetricsWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
MetricsWriter::MetricsWriter(MetricsWriter&&) noexcept = default;
MetricsWriter& MetricsWriter::operator=(MetricsWriter&&) noexcept = default;
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const Record& record) { impl_->append(record.json() + "\n"); }

void MetricsWriter::write_json(const std::string& object) {
  const auto line = nlohmann::json::parse(object, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object())
    throw ConfigError("metrics take JSON objects, and this is not one: " + object.substr(0, 100));
  impl_->append(text_of(line) + "\n");
}

}  // namespace skein
