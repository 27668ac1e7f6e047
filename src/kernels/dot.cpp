#include "kernels/dot.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

static_assert(kGroup == 32, "a group has one element per lane of a dot product");

template <class A, class B>
float dot_of(const std::byte* a, const std::byte* b, std::size_t hidden) {
  Group lanes = splat(0.0f);
  std::size_t first = 0;
  for (; first + kGroup <= hidden; first += kGroup)
    lanes = add(lanes, multiply(load<A>(a, first, Whole()), load<B>(b, first, Whole())));
  if (first < hidden) {
    // Missing elements add +0 × +0, which changes no sum: a sum that starts from +0 is never −0.
    const Part rest{hidden - first};
    lanes = add(lanes, multiply(load<A>(a, first, rest), load<B>(b, first, rest)));
  }

  std::array<float, kGroup> sums;
  for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(lanes.vectors[v], Floats(), sums.data() + v * kLanes);
  for (std::size_t half = kGroup / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

float dot_rows(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, std::size_t hidden) {
  return with_format(a_dtype, [=]<class A>(A) HWY_ATTR {
    return with_format(b_dtype, [=]<class B>(B) HWY_ATTR { return dot_of<A, B>(a, b, hidden); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(dot_rows);

float dot(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, std::size_t hidden) {
  return HWY_DYNAMIC_DISPATCH(dot_rows)(a, a_dtype, b, b_dtype, hidden);
}

}  // namespace shunt
#endif
