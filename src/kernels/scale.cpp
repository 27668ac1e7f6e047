#include "kernels/scale.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scale.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

template <class Format>
struct Weighted {
  const std::byte* row;
  float weight;

  template <class Extent>
  HWY_INLINE Group operator()(std::size_t first, Extent extent) const {
    return multiply(splat(weight), load<Format>(row, first, extent));
  }
};

void scale(const std::byte* source, DType source_dtype, float weight, std::size_t hidden, std::byte* target,
           DType target_dtype, Store how) {
  with_format(source_dtype, [=]<class Source>(Source) HWY_ATTR {
    with_format(target_dtype, [=]<class Target>(Target) HWY_ATTR {
      write_row<Target>(target, hidden, how, Weighted<Source>{source, weight});
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(scale);

void scale_row(const std::byte* source, DType source_dtype, float weight, std::size_t hidden, std::byte* target,
               DType target_dtype, Store store) {
  HWY_DYNAMIC_DISPATCH(scale)(source, source_dtype, weight, hidden, target, target_dtype, store);
}

}  // namespace shunt
#endif
