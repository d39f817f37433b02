#include "skein/workers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "runtime/calls.h"

namespace skein {
namespace {

template <typename Number>
std::span<const std::byte> bytes_of(const std::vector<Number>& values) {
  return std::as_bytes(std::span(values));
}

template <typename Number>
std::vector<Number> numbers_in(std::span<const std::byte> bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// "world.sum() of 3 values"
std::string call_of(const Workers::Calls& calls, const char* what, std::size_t values,
                    const char* kind = "value") {
  return fmt::format("{} of {} {}{}", calls.name_of(what), values, kind, values == 1 ? "" : "s");
}

// Every worker's numbers, by rank.
template <typename Number>
std::vector<std::vector<Number>> gathered(Workers::Calls& calls, const std::string& call,
                                          const std::vector<Number>& own) {
  std::vector<std::vector<Number>> rows;
  rows.reserve(static_cast<std::size_t>(calls.fabric().size()));
  for (const auto& bytes : calls.gather(call, bytes_of(own)))
    rows.push_back(numbers_in<Number>(bytes));
  return rows;
}

// What `better` leaves of the workers' numbers, in the order of ranks; associative.
template <typename Number>
std::vector<Number> combined(Workers::Calls& calls, const std::string& call,
                             const std::vector<Number>& own, Number (*better)(Number, Number)) {
  const Merge merge = [better](std::span<std::byte> into, std::span<const std::byte> from) {
    for (std::size_t at = 0; at < into.size(); at += sizeof(Number)) {
      Number lower{}, higher{};
      std::memcpy(&lower, into.data() + at, sizeof(Number));
      std::memcpy(&higher, from.data() + at, sizeof(Number));
      lower = better(lower, higher);
      std::memcpy(into.data() + at, &lower, sizeof(Number));
    }
  };
  return numbers_in<Number>(calls.combine(call, bytes_of(own), merge));
}

double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }
double smaller(double a, double b) { return std::isnan(a) || a <= b ? a : b; }
std::int64_t larger_integer(std::int64_t a, std::int64_t b) { return std::max(a, b); }
std::int64_t smaller_integer(std::int64_t a, std::int64_t b) { return std::min(a, b); }
std::int64_t wrapped_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

Workers::Calls& Workers::calls() const {
  if (!calls_) throw ConfigError("this worker is not in the group that it calls");
  return *calls_;
}

int Workers::rank() const { return calls().fabric().rank(); }
int Workers::size() const { return calls().fabric().size(); }

void Workers::barrier(const std::string& name) {
  calls().meet(name.empty() ? calls().name_of("barrier()")
                            : fmt::format("{}(\"{}\")", calls().name_of("barrier"), name));
}

std::vector<double> Workers::sum(const std::vector<double>& values) {
  std::vector<double> sums(values.size());
  for (const auto& row : gathered(calls(), call_of(calls(), "sum()", values.size()), values))
    for (std::size_t i = 0; i < row.size(); ++i) sums[i] += row[i];
  return sums;
}

std::vector<std::int64_t> Workers::sum_integers(const std::vector<std::int64_t>& values) {
  return combined(calls(), call_of(calls(), "sum_integers()", values.size(), "integer"), values,
                  wrapped_sum);
}

std::vector<double> Workers::max(const std::vector<double>& values) {
  return combined(calls(), call_of(calls(), "max()", values.size()), values, larger);
}
std::vector<double> Workers::min(const std::vector<double>& values) {
  return combined(calls(), call_of(calls(), "min()", values.size()), values, smaller);
}
std::vector<std::int64_t> Workers::max_integers(const std::vector<std::int64_t>& values) {
  return combined(calls(), call_of(calls(), "max_integers()", values.size(), "integer"), values,
                  larger_integer);
}
std::vector<std::int64_t> Workers::min_integers(const std::vector<std::int64_t>& values) {
  return combined(calls(), call_of(calls(), "min_integers()", values.size(), "integer"), values,
                  smaller_integer);
}

std::vector<std::vector<double>> Workers::gather(const std::vector<double>& values) {
  return gathered(calls(), call_of(calls(), "gather()", values.size()), values);
}
std::vector<std::vector<std::int64_t>> Workers::gather_integers(
    const std::vector<std::int64_t>& values) {
  return gathered(calls(), call_of(calls(), "gather_integers()", values.size(), "integer"), values);
}
std::vector<std::string> Workers::gather_text(const std::string& text) {
  return calls().gather_text(calls().name_of("gather_text()"), text);
}

std::vector<bool> Workers::present() const { return calls().present(); }

std::vector<double> Workers::broadcast(const std::vector<double>& values, int root) {
  return numbers_in<double>(
      calls().broadcast(fmt::format("{} from rank {}", calls().name_of("broadcast()"), root),
                        bytes_of(values), root));
}
std::vector<std::int64_t> Workers::broadcast_integers(const std::vector<std::int64_t>& values,
                                                      int root) {
  return numbers_in<std::int64_t>(calls().broadcast(
      fmt::format("{} from rank {}", calls().name_of("broadcast_integers()"), root),
      bytes_of(values), root));
}
std::string Workers::broadcast_text(const std::string& text, int root) {
  const auto bytes =
      calls().broadcast(fmt::format("{} from rank {}", calls().name_of("broadcast_text()"), root),
                        std::as_bytes(std::span(text)), root);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace skein
