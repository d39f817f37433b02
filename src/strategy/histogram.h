// How often each whole number came.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>

namespace skein {

class Histogram {
 public:
  void add(std::int64_t value) { ++counts_[value]; }
  double mean() const;  // 0 when nothing came

  // {"value": times, …}
  nlohmann::json json() const;

 private:
  std::map<std::int64_t, std::int64_t> counts_;
};

}  // namespace skein
