#include "skein/record.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "observe/json_text.h"
#include "observe/metrics_file.h"
#include "skein/error.h"
#include "skein/metrics_file.h"

namespace skein {

std::string Record::json() const {
  nlohmann::json line{{"kind", "step"}, {"step", step}, {"samples", samples}, {"seconds", seconds}};
  const auto put = [&](const std::string& name, double value) {
    if (!std::isnan(value)) line[name] = value;
  };
  for (const auto& [name, value] : more) put(name, value);
  put("loss", loss);
  put("samples_per_second", samples_per_second);
  put("iteration_ms", step_ms);
  put("exposed_comm_ms", exposed_comm_ms);
  put("learning_rate", learning_rate);
  put("consensus_distance", consensus);
  return text_of(line);
}

class MetricsWriter::Impl {
 public:
  explicit Impl(const std::string& path) : file(path) {}
  MetricsFile file;
};

MetricsWriter::MetricsWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
MetricsWriter::MetricsWriter(MetricsWriter&&) noexcept = default;
MetricsWriter& MetricsWriter::operator=(MetricsWriter&&) noexcept = default;
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const Record& record) { write_json(record.json()); }

void MetricsWriter::write_json(const std::string& object) {
  const auto line = nlohmann::json::parse(object, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object())
    throw ConfigError("metrics take JSON objects, and this is not one: " + object.substr(0, 100));
  impl_->file.write(line);
}

}  // namespace skein
