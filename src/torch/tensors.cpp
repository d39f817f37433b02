#include "skein/torch_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/calls.h"

namespace skein {
namespace {

const char* word_for(Reduce how) {
  switch (how) {
    case Reduce::sum:
      return "sum";
    case Reduce::mean:
      return "mean";
    case Reduce::max:
      return "max";
    case Reduce::min:
      return "min";
  }
  return "?";
}

// "a Float tensor [3, 4]"
std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << "a " << (tensor.layout() == torch::kStrided ? "" : "sparse ")
       << c10::toString(tensor.scalar_type()) << " tensor " << tensor.sizes();
  return text.str();
}

// All workers have said the same of their tensors, so all of them throw.
void check_dense(const std::string& call, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.is_quantized())
    throw ConfigError(call + ": expected a dense tensor");
}

// What is computed with: narrower numbers have room in these.
torch::ScalarType widened(const std::string& call, torch::ScalarType type) {
  if (type == torch::kFloat32 || type == torch::kFloat16 || type == torch::kBFloat16)
    return torch::kFloat32;
  if (type == torch::kFloat64) return type;
  if (c10::isIntegralType(type, /*includeBool=*/true)) return torch::kInt64;
  throw ConfigError(call + ": expected floating-point numbers, integers or bools");
}

template <typename Number>
Number combined(Reduce how, Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    if (how == Reduce::sum)
      return static_cast<Number>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (how == Reduce::sum || how == Reduce::mean) return a + b;
  }
  return how == Reduce::max ? std::max(a, b) : std::min(a, b);
}

template <typename Number>
void combine_all(Workers::Calls& calls, const std::string& call, Reduce how,
                 torch::Tensor& values) {
  const Merge merge = [how](std::span<std::byte> into, std::span<const std::byte> from) {
    auto* const lower = reinterpret_cast<Number*>(into.data());
    const auto* const higher = reinterpret_cast<const Number*>(from.data());
    for (std::size_t i = 0; i < into.size() / sizeof(Number); ++i)
      lower[i] = combined(how, lower[i], higher[i]);
  };
  calls.combine_in_place(
      call, {static_cast<std::byte*>(values.data_ptr()), static_cast<std::size_t>(values.nbytes())},
      merge);
}

// As models are summed.
void sum_floats(Workers::Calls& calls, const std::string& call, torch::Tensor& values) {
  const Span span{values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
  if (Survivors* const survivors = calls.survivors())
    calls.wait_for_survivors(call, survivors->sum(span, calls.deadline()));
  else
    calls.wait(call, calls.fabric().all_reduce(Workers::Calls::kOwnChannel, span, calls.limit()));
}

}  // namespace

void all_reduce(const Workers& workers, const torch::Tensor& tensor, Reduce how) {
  const torch::NoGradGuard no_grad;
  Workers::Calls& calls = workers.calls();
  const std::string call =
      fmt::format("skein::all_reduce() ({}) of {}", word_for(how), describe(tensor));
  calls.meet(call);
  check_dense(call, tensor);
  const torch::ScalarType type = widened(call, tensor.scalar_type());
  if (how == Reduce::mean && type == torch::kInt64)
    throw ConfigError(call + ": integers have no mean; expected floating-point numbers");
  torch::Tensor values = tensor.detach().to(torch::kCPU, type).contiguous();
  const bool adds = how == Reduce::sum || how == Reduce::mean;
  if (type == torch::kFloat32 && adds)
    sum_floats(calls, call, values);
  else if (type == torch::kFloat32)
    combine_all<float>(calls, call, how, values);
  else if (type == torch::kFloat64)
    combine_all<double>(calls, call, how, values);
  else
    combine_all<std::int64_t>(calls, call, how, values);
  if (how == Reduce::mean)
    values.div_(static_cast<double>(std::ranges::count(calls.present(), true)));
  if (!values.is_same(tensor)) tensor.detach().copy_(values);
}

void broadcast(const Workers& workers, const torch::Tensor& tensor, int root) {
  const torch::NoGradGuard no_grad;
  Workers::Calls& calls = workers.calls();
  const std::string call =
      fmt::format("skein::broadcast() of {} from rank {}", describe(tensor), root);
  torch::Tensor values;
  if (tensor.defined() && tensor.layout() == torch::kStrided)
    values = tensor.detach().to(torch::kCPU).contiguous();
  const std::span<const std::byte> own{
      values.defined() ? static_cast<const std::byte*>(values.data_ptr()) : nullptr,
      values.defined() ? static_cast<std::size_t>(values.nbytes()) : 0};
  const auto theirs = calls.broadcast(call, own, root);
  check_dense(call, tensor);
  if (workers.rank() == root) return;
  std::ranges::copy(theirs, static_cast<std::byte*>(values.data_ptr()));
  tensor.detach().copy_(values);
}

}  // namespace skein
