#include "runtime/vector_math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/vector_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace shunt::runtime {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

HWY_INLINE Vector constant(float value) { return hn::Set(Floats(), value); }

/// Calls whole(i) for each full vector, and part(i, mask) for the elements after the last one.
template <class Whole, class Part>
HWY_INLINE void for_vectors(std::size_t count, const Whole& whole, const Part& part) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) whole(i);
  if (i < count) part(i, hn::FirstN(Floats(), count - i));
}

/// to[i] = f(from[i], …).
template <class F, class... From>
HWY_INLINE void transform(std::size_t count, float* to, const F& f, const From*... from) {
  const Floats d;
  for_vectors(
      count, [&](std::size_t i) HWY_ATTR { hn::StoreU(f(hn::LoadU(d, from + i)...), d, to + i); },
      [&](std::size_t i, auto mask)
          HWY_ATTR { hn::BlendedStore(f(hn::MaskedLoad(mask, d, from + i)...), mask, d, to + i); });
}

/// Folds f(from[i], …) into one vector; elements beyond the last count as `neutral`.
template <class Fold, class F, class... From>
HWY_INLINE Vector reduce(std::size_t count, Vector neutral, const Fold& fold, const F& f, const From*... from) {
  const Floats d;
  // Four sums, as an addition takes four cycles.
  Vector folded[4] = {neutral, neutral, neutral, neutral};
  std::size_t turn = 0;
  for_vectors(
      count,
      [&](std::size_t i) HWY_ATTR {
        Vector& into = folded[turn++ % 4];
        into = fold(into, f(hn::LoadU(d, from + i)...));
      },
      [&](std::size_t i, auto mask) HWY_ATTR {
        folded[0] = fold(folded[0], hn::IfThenElse(mask, f(hn::MaskedLoad(mask, d, from + i)...), neutral));
      });
  return fold(fold(folded[0], folded[1]), fold(folded[2], folded[3]));
}

HWY_INLINE Vector sum_of(Vector a, Vector b) { return hn::Add(a, b); }

HWY_INLINE Vector exponential(Vector x) {
  const Vector power = hn::Exp(Floats(), hn::Min(hn::Max(x, constant(-87.0f)), constant(87.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, power);  // Max drops it, and a training that diverges would go on unseen
}

HWY_INLINE Vector logistic(Vector x) {
  return hn::Div(constant(1.0f), hn::Add(constant(1.0f), exponential(hn::Neg(x))));
}

/// The normal distribution's integral up to x: (1 + erf(x / √2)) / 2, by Abramowitz and Stegun, 7.1.26 (error 1.5e-7).
HWY_INLINE Vector normal_integral(Vector x) {
  const Vector z = hn::Mul(hn::Abs(x), constant(0.70710678f));
  const Vector t = hn::Div(constant(1.0f), hn::MulAdd(z, constant(0.3275911f), constant(1.0f)));
  Vector sum = constant(1.061405429f);
  for (const float term : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    sum = hn::MulAdd(sum, t, constant(term));
  const Vector upper = hn::Mul(constant(0.5f), hn::Mul(hn::Mul(sum, t), exponential(hn::Neg(hn::Mul(z, z)))));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(Floats())), upper, hn::Sub(constant(1.0f), upper));
}

struct Gelu {
  HWY_INLINE Vector value(Vector x) const { return hn::Mul(x, normal_integral(x)); }
  HWY_INLINE Vector slope(Vector x) const {
    const Vector density = hn::Mul(constant(0.39894228f), exponential(hn::Mul(constant(-0.5f), hn::Mul(x, x))));
    return hn::MulAdd(x, density, normal_integral(x));
  }
};
struct Silu {
  HWY_INLINE Vector value(Vector x) const { return hn::Mul(x, logistic(x)); }
  HWY_INLINE Vector slope(Vector x) const {
    const Vector s = logistic(x);
    return hn::Mul(s, hn::MulAdd(x, hn::Sub(constant(1.0f), s), constant(1.0f)));
  }
};
struct Relu {
  HWY_INLINE Vector value(Vector x) const { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(Floats())), x); }
  HWY_INLINE Vector slope(Vector x) const { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(Floats())), constant(1.0f)); }
};
struct Sigmoid {
  HWY_INLINE Vector value(Vector x) const { return logistic(x); }
  HWY_INLINE Vector slope(Vector x) const {
    const Vector s = logistic(x);
    return hn::Mul(s, hn::Sub(constant(1.0f), s));
  }
};

template <class Visit>
HWY_INLINE void with_function(Function function, const Visit& visit) {
  switch (function) {
    case Function::gelu: return visit(Gelu());
    case Function::silu: return visit(Silu());
    case Function::relu: return visit(Relu());
    case Function::sigmoid: return visit(Sigmoid());
  }
}

void add_runs(const float* a, const float* b, float* sum, std::size_t count) {
  transform(
      count, sum, [](Vector x, Vector y) HWY_ATTR { return hn::Add(x, y); }, a, b);
}
void multiply_runs(const float* a, const float* b, float* product, std::size_t count) {
  transform(
      count, product, [](Vector x, Vector y) HWY_ATTR { return hn::Mul(x, y); }, a, b);
}
void scale_run(const float* x, float by, float* scaled, std::size_t count) {
  transform(
      count, scaled, [by](Vector v) HWY_ATTR { return hn::Mul(v, constant(by)); }, x);
}
void add_scaled_run(const float* x, float by, float* sum, std::size_t count) {
  const float* const before = sum;
  transform(
      count, sum, [by](Vector v, Vector s) HWY_ATTR { return hn::MulAdd(v, constant(by), s); }, x, before);
}
void apply_to_run(Function function, const float* x, float* y, std::size_t count) {
  with_function(function, [=](const auto& f) HWY_ATTR {
    transform(
        count, y, [f](Vector v) HWY_ATTR { return f.value(v); }, x);
  });
}
void apply_derivative_to_run(Function function, const float* dy, const float* x, float* dx, std::size_t count) {
  with_function(function, [=](const auto& f) HWY_ATTR {
    transform(
        count, dx, [f](Vector d, Vector v) HWY_ATTR { return hn::Mul(d, f.slope(v)); }, dy, x);
  });
}
void swiglu_of_runs(const float* gate, const float* up, float* y, std::size_t count) {
  transform(
      count, y, [](Vector g, Vector u) HWY_ATTR { return hn::Mul(Silu().value(g), u); }, gate, up);
}
void swiglu_dx_of_runs(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                       std::size_t count) {
  transform(
      count, dgate, [](Vector d, Vector g, Vector u) HWY_ATTR { return hn::Mul(hn::Mul(d, u), Silu().slope(g)); }, dy,
      gate, up);
  transform(
      count, dup, [](Vector d, Vector g) HWY_ATTR { return hn::Mul(d, Silu().value(g)); }, dy, gate);
}
float exponentials_of_run(const float* x, float by, float most, float* y, std::size_t count) {
  transform(
      count, y, [=](Vector v) HWY_ATTR { return exponential(hn::Sub(hn::Mul(v, constant(by)), constant(most))); }, x);
  const float* const written = y;
  return hn::GetLane(
      hn::SumOfLanes(Floats(), reduce(
                                   count, hn::Zero(Floats()), sum_of, [](Vector v) HWY_ATTR { return v; }, written)));
}
float largest_of_run(const float* x, std::size_t count) {
  const auto larger = [](Vector a, Vector b) HWY_ATTR { return hn::Max(a, b); };
  const Vector least = constant(-__builtin_inff());
  return hn::GetLane(hn::MaxOfLanes(Floats(), reduce(
                                                  count, least, larger, [](Vector v) HWY_ATTR { return v; }, x)));
}
float sum_of_run(const float* x, std::size_t count) {
  return hn::GetLane(
      hn::SumOfLanes(Floats(), reduce(
                                   count, hn::Zero(Floats()), sum_of, [](Vector v) HWY_ATTR { return v; }, x)));
}
float dot_of_runs(const float* a, const float* b, std::size_t count) {
  const auto product = [](Vector x, Vector y) HWY_ATTR { return hn::Mul(x, y); };
  return hn::GetLane(hn::SumOfLanes(Floats(), reduce(count, hn::Zero(Floats()), sum_of, product, a, b)));
}
void adam_of_runs(const Adam& step, const float* gradient, float* param, float* first, float* second,
                  std::size_t count) {
  const float *const m = first, *const v = second, *const p = param;
  const auto moment = [](float beta, Vector old, Vector now)
                          HWY_ATTR { return hn::MulAdd(constant(beta), old, hn::Mul(constant(1 - beta), now)); };
  transform(
      count, first, [&](Vector old, Vector g) HWY_ATTR { return moment(step.beta1, old, g); }, m, gradient);
  transform(
      count, second, [&](Vector old, Vector g) HWY_ATTR { return moment(step.beta2, old, hn::Mul(g, g)); }, v,
      gradient);
  transform(
      count, param,
      [&](Vector old, Vector mean, Vector square) HWY_ATTR {
        const Vector root = hn::Sqrt(hn::Max(hn::Mul(square, constant(step.correction2)), hn::Zero(Floats())));
        const Vector change =
            hn::Div(hn::Mul(mean, constant(step.rate * step.correction1)), hn::Add(root, constant(step.eps)));
        return hn::Sub(old, change);
      },
      p, m, v);
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt::runtime
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt::runtime {

HWY_EXPORT(add_runs);
HWY_EXPORT(multiply_runs);
HWY_EXPORT(scale_run);
HWY_EXPORT(add_scaled_run);
HWY_EXPORT(apply_to_run);
HWY_EXPORT(apply_derivative_to_run);
HWY_EXPORT(swiglu_of_runs);
HWY_EXPORT(swiglu_dx_of_runs);
HWY_EXPORT(exponentials_of_run);
HWY_EXPORT(largest_of_run);
HWY_EXPORT(sum_of_run);
HWY_EXPORT(dot_of_runs);
HWY_EXPORT(adam_of_runs);

void add(const float* a, const float* b, float* sum, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_runs)(a, b, sum, count);
}
void multiply(const float* a, const float* b, float* product, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_runs)(a, b, product, count);
}
void scale(const float* x, float by, float* scaled, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(scale_run)(x, by, scaled, count);
}
void add_scaled(const float* x, float by, float* sum, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled_run)(x, by, sum, count);
}
void apply(Function function, const float* x, float* y, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(apply_to_run)(function, x, y, count);
}
void apply_derivative(Function function, const float* dy, const float* x, float* dx, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(apply_derivative_to_run)(function, dy, x, dx, count);
}
void swiglu(const float* gate, const float* up, float* y, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(swiglu_of_runs)(gate, up, y, count);
}
void swiglu_dx(const float* dy, const float* gate, const float* up, float* dgate, float* dup, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(swiglu_dx_of_runs)(dy, gate, up, dgate, dup, count);
}
float exponentials(const float* x, float by, float most, float* y, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(exponentials_of_run)(x, by, most, y, count);
}
float largest(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(largest_of_run)(x, count); }
float sum(const float* x, std::size_t count) { return HWY_DYNAMIC_DISPATCH(sum_of_run)(x, count); }
float dot(const float* a, const float* b, std::size_t count) { return HWY_DYNAMIC_DISPATCH(dot_of_runs)(a, b, count); }
void adam(const Adam& step, const float* gradient, float* param, float* first, float* second, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(adam_of_runs)(step, gradient, param, first, second, count);
}

}  // namespace shunt::runtime
#endif
