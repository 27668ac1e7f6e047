#include "kernels/add_weighted.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add_weighted.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

template <class Format>
struct SumPlusWeighted {
  const std::byte* sum;
  const std::byte* row;
  float weight;

  template <class Extent>
  HWY_INLINE Group operator()(std::size_t first, Extent extent) const {
    return add(load<F32Format>(sum, first, extent), multiply(splat(weight), load<Format>(row, first, extent)));
  }
};

void add_weighted(const float* sum, const std::byte* row, DType row_dtype, float weight, std::size_t hidden,
                  std::byte* target, DType target_dtype, Store how) {
  const auto* const sum_row = reinterpret_cast<const std::byte*>(sum);
  with_format(row_dtype, [=]<class Row>(Row) HWY_ATTR {
    with_format(target_dtype, [=]<class Target>(Target) HWY_ATTR {
      write_row<Target>(target, hidden, how, SumPlusWeighted<Row>{sum_row, row, weight});
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(add_weighted);

void add_weighted_row(const float* sum, const std::byte* row, DType row_dtype, float weight, std::size_t hidden,
                      std::byte* target, DType target_dtype, Store store) {
  HWY_DYNAMIC_DISPATCH(add_weighted)(sum, row, row_dtype, weight, hidden, target, target_dtype, store);
}

}  // namespace shunt
#endif
