// Arithmetic on runs of f32 in memory, with the widest vectors of this machine. Results may overlap operands only if
// they begin at the same address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::runtime {

enum class Function : std::uint8_t { gelu, silu, relu, sigmoid };

void add(const float* a, const float* b, float* sum, std::size_t count);
void multiply(const float* a, const float* b, float* product, std::size_t count);
void scale(const float* x, float by, float* scaled, std::size_t count);
/// sum[i] += by × x[i].
void add_scaled(const float* x, float by, float* sum, std::size_t count);

void apply(Function function, const float* x, float* y, std::size_t count);
/// dx[i] = dy[i] × the function's derivative at x[i].
void apply_derivative(Function function, const float* dy, const float* x, float* dx, std::size_t count);

/// y = silu(gate) × up, and its gradients.
void swiglu(const float* gate, const float* up, float* y, std::size_t count);
void swiglu_dx(const float* dy, const float* gate, const float* up, float* dgate, float* dup, std::size_t count);

/// y[i] = exp(by × x[i] − most); returns their sum. Without elements, 0.
float exponentials(const float* x, float by, float most, float* y, std::size_t count);
[[nodiscard]] float largest(const float* x, std::size_t count);
[[nodiscard]] float sum(const float* x, std::size_t count);
[[nodiscard]] float dot(const float* a, const float* b, std::size_t count);

/// One step of Adam (arXiv 1412.6980, algorithm 1) in place. The corrections are 1 / (1 − beta^step).
struct Adam {
  float beta1, beta2, eps, rate;
  float correction1, correction2;
};
void adam(const Adam& step, const float* gradient, float* param, float* first, float* second, std::size_t count);

}  // namespace shunt::runtime
