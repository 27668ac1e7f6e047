#include "kernels/swiglu.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

// For NaN the result is unspecified: the caller divides the same NaN by it.
HWY_INLINE FloatVector exponential(FloatVector x) {
  const Floats d;
  const auto constant = [d](float value) { return hn::Set(d, value); };
  x = hn::Min(hn::Max(x, constant(-swiglu::kLimit)), constant(swiglu::kLimit));
  const FloatVector shifted = hn::Add(hn::Mul(x, constant(swiglu::kLog2E)), constant(swiglu::kToInteger));
  const FloatVector n = hn::Sub(shifted, constant(swiglu::kToInteger));
  const FloatVector r =
      hn::Sub(hn::Sub(x, hn::Mul(n, constant(swiglu::kLn2High))), hn::Mul(n, constant(swiglu::kLn2Low)));
  FloatVector sum = constant(swiglu::kExpTerms[0]);
  for (std::size_t term = 1; term < std::size(swiglu::kExpTerms); ++term)
    sum = hn::Add(hn::Mul(sum, r), constant(swiglu::kExpTerms[term]));
  constexpr std::int32_t kExponentBias = 127;
  const IntVector exponent = hn::Add(hn::BitCast(Ints(), shifted), hn::Set(Ints(), kExponentBias));
  return hn::Mul(sum, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

template <class Format>
struct SiluTimesUp {
  const std::byte* gate;
  const std::byte* up;

  template <class Extent>
  HWY_INLINE Group operator()(std::size_t first, Extent extent) const {
    Group activated = load<Format>(gate, first, extent);
    for (FloatVector& vector : activated.vectors)
      vector = hn::Div(vector, hn::Add(hn::Set(Floats(), 1.0f), exponential(hn::Neg(vector))));
    return multiply(activated, load<Format>(up, first, extent));
  }
};

void swiglu_of_row(const std::byte* gate, const std::byte* up, std::size_t count, DType dtype, std::byte* target) {
  with_format(dtype, [=]<class Format>(Format) HWY_ATTR {
    write_row<Format>(target, count, Store::cached, SiluTimesUp<Format>{gate, up});
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(swiglu_of_row);

void swiglu_row(const std::byte* gate, const std::byte* up, std::size_t count, DType dtype, std::byte* target) {
  HWY_DYNAMIC_DISPATCH(swiglu_of_row)(gate, up, count, dtype, target);
}

}  // namespace shunt
#endif
