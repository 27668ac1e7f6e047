#include "bench/reference/expert.hpp"

#include <cmath>

#include "bench/reference/rows.hpp"

namespace shunt {
namespace {

/// x · wᵀ for w: [outputs, x.size()].
std::vector<float> product(std::span<const float> x, std::span<const float> w, DType dtype) {
  std::vector<float> y(w.size() / x.size());
  for (std::size_t output = 0; output < y.size(); ++output) {
    const std::span<const float> row = w.subspan(output * x.size(), x.size());
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(row[i]) * static_cast<double>(x[i]);
    y[output] = rounded_to(static_cast<float>(sum), dtype);
  }
  return y;
}

}  // namespace

std::vector<float> ReferenceExpert::apply(std::span<const float> x) const {
  const std::vector<float> inner = product(x, gate_up, dtype);
  std::vector<float> activated(static_cast<std::size_t>(ffn));
  for (std::size_t i = 0; i < activated.size(); ++i)
    activated[i] = rounded_to(inner[i] / (1.0f + std::exp(-inner[i])) * inner[activated.size() + i], dtype);
  return product(activated, down, dtype);
}

std::vector<float> reference_token(std::span<const float> x, std::span<const std::int32_t> experts,
                                   std::span<const float> weights,
                                   const std::function<ReferenceExpert(std::int32_t)>& expert_of) {
  std::vector<double> sum(x.size());
  DType dtype = f32;
  for (std::size_t choice = 0; choice < experts.size(); ++choice) {
    if (experts[choice] < 0) continue;
    const ReferenceExpert expert = expert_of(experts[choice]);
    dtype = expert.dtype;
    const std::vector<float> y = expert.apply(x);
    for (std::size_t i = 0; i < y.size(); ++i)
      sum[i] += static_cast<double>(weights[choice]) * static_cast<double>(y[i]);
  }
  std::vector<float> result;
  for (const double value : sum) result.push_back(rounded_to(static_cast<float>(value), dtype));
  return result;
}

double relative_error(std::span<const float> actual, std::span<const float> expected) {
  double distance = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    distance += std::pow(static_cast<double>(actual[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return distance == 0 ? 0 : std::sqrt(distance / norm);
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1e-5;
    case DType::f16: return 1e-3;
    default: return 8e-3;
  }
}

}  // namespace shunt
