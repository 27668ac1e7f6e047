// Optimizers, in place.
#include <cmath>

#include "runtime/kernels.hpp"
#include "runtime/runs.hpp"
#include "runtime/vector_math.hpp"

namespace shunt::runtime::kernels {
namespace {

// Parameters, their moments and gradients are whole values, hence contiguous.
std::size_t count_of(const View& param) { return static_cast<std::size_t>(param.count()); }

}  // namespace

void sgd(const OpCall& call) {
  add_scaled(call.in(1).f32(), static_cast<float>(-call.real("rate")), call.out().f32(), count_of(call.out()));
}

void adam(const OpCall& call) {
  const double number = *call.in(5).f32();
  const auto correction = [&](const char* beta) {
    return static_cast<float>(1 / (1 - std::pow(call.real(beta), number)));
  };
  runtime::adam({.beta1 = static_cast<float>(call.real("beta1")),
                 .beta2 = static_cast<float>(call.real("beta2")),
                 .eps = static_cast<float>(call.real("eps")),
                 .rate = *call.in(4).f32(),
                 .correction1 = correction("beta1"),
                 .correction2 = correction("beta2")},
                call.in(1).f32(), call.out(0).f32(), call.out(1).f32(), call.out(2).f32(), count_of(call.out()));
}

// DeepSeek-V3's balancing without a loss (arXiv 2412.19437, section 2.1.2).
void bias_update(const OpCall& call) {
  const std::size_t count = count_of(call.out());
  const float* const counts = call.in(1).f32();
  const auto rate = static_cast<float>(call.real("rate"));
  double total = 0;
  for (std::size_t expert = 0; expert < count; ++expert) total += counts[expert];
  const double mean = total / static_cast<double>(count);
  for (std::size_t expert = 0; expert < count; ++expert) {
    const double excess = counts[expert] - mean;
    call.out().f32()[expert] -= excess > 0 ? rate : excess < 0 ? -rate : 0.0f;
  }
}

}  // namespace shunt::runtime::kernels
