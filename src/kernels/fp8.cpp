#include "kernels/fp8.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp8.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

static_assert(kScaleBlock % kGroup == 0, "a group has one scale");

constexpr float kLargestE4m3 = 448.0f;
constexpr float kSmallestAmax = 0x1p-100f;

// Calls body(first, Whole or Part) for each group of the block [first, end).
template <class Body>
HWY_INLINE void for_each_group(std::size_t first, std::size_t end, const Body& body) {
  for (; first + kGroup <= end; first += kGroup) body(first, Whole());
  if (first < end) body(first, Part{end - first});
}

// The largest magnitude of a block, as bits of its format: these order like the magnitudes, with infinity and NaN on
// top, so no element needs to be widened.
template <class Format>
class LargestMagnitude {
 public:
  HWY_INLINE LargestMagnitude() : largest_(hn::Zero(Magnitudes())) {}

  HWY_INLINE void operator()(const std::byte* source, std::size_t first, Whole) {
    const Magnitudes d;
    const hn::Repartition<std::uint8_t, Magnitudes> bytes;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(source) + first * sizeof(Magnitude);
    for (std::size_t i = 0; i < kGroup; i += hn::MaxLanes(d)) {
      const auto bits = hn::BitCast(d, hn::LoadU(bytes, from + i * sizeof(Magnitude)));
      largest_ = hn::Max(largest_, hn::And(bits, hn::Set(d, hwy::LimitsMax<Magnitude>())));
    }
  }

  HWY_INLINE void operator()(const std::byte* source, std::size_t first, Part part) {
    (*this)(Padded<Format>(source, first, part).bytes.data(), 0, Whole());
  }

  HWY_INLINE float value() const {
    const Narrow<typename Format::Bits> d;
    const auto bits = hn::Set(hn::RebindToSigned<decltype(d)>(), hn::GetLane(hn::MaxOfLanes(Magnitudes(), largest_)));
    return hn::GetLane(Format::widen(hn::BitCast(d, bits)));
  }

 private:
  using Magnitude = hwy::MakeSigned<typename Format::Bits>;
  using Magnitudes = hn::CappedTag<Magnitude, kGroup>;

  hn::Vec<Magnitudes> largest_;
};

// Computes the scale of the block [first, end) and returns its factor; both are NaN if the block has no finite scale.
template <class Format>
HWY_INLINE float measure_block(const std::byte* source, std::size_t first, std::size_t end, float& scale) {
  LargestMagnitude<Format> largest;
  for_each_group(first, end, [&](std::size_t i, auto extent) HWY_ATTR { largest(source, i, extent); });
  const float amax = std::max(largest.value(), kSmallestAmax);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  scale = std::isfinite(amax) ? amax / kLargestE4m3 : nan;
  return std::isfinite(amax) ? kLargestE4m3 / amax : nan;
}

template <class Format>
HWY_INLINE void narrow_block(const std::byte* source, std::size_t first, std::size_t end, float factor,
                             std::byte* elements) {
  if (std::isnan(factor)) {
    std::fill(elements + first, elements + end, std::byte{E4m3Layout::kQuietNan});
    return;
  }
  for_each_group(first, end, [=](std::size_t i, auto extent) HWY_ATTR {
    store<E4m3Format>(multiply(splat(factor), load<Format>(source, i, extent)), elements, i, extent);
  });
}

template <class Format>
void quantise_as(const std::byte* source, std::size_t hidden, std::byte* elements, float* scales) {
  // A block's factor is the end of a long dependency chain (maximum, division). Measuring several blocks before
  // narrowing them overlaps their chains, which is 1.25 times as fast as block by block (bench_kernels,
  // quantise_in_cache).
  constexpr std::size_t kAhead = 8;
  std::array<float, kAhead> factors;
  for (std::size_t run = 0; run < hidden; run += kAhead * kScaleBlock) {
    const std::size_t run_end = std::min(run + kAhead * kScaleBlock, hidden);
    for (std::size_t first = run; first < run_end; first += kScaleBlock) {
      const std::size_t block = first / kScaleBlock;
      const std::size_t end = std::min(first + kScaleBlock, run_end);
      factors[block % kAhead] = measure_block<Format>(source, first, end, scales[block]);
    }
    for (std::size_t first = run; first < run_end; first += kScaleBlock) {
      const std::size_t end = std::min(first + kScaleBlock, run_end);
      narrow_block<Format>(source, first, end, factors[first / kScaleBlock % kAhead], elements);
    }
  }
}

struct Dequantised {
  const std::byte* elements;
  const float* scales;

  template <class Extent>
  HWY_INLINE Group operator()(std::size_t first, Extent extent) const {
    return multiply(splat(scales[first / kScaleBlock]), load<E4m3Format>(elements, first, extent));
  }
};

void quantise(const std::byte* source, DType source_dtype, std::size_t hidden, std::byte* elements, float* scales) {
  with_format(source_dtype,
              [=]<class Source>(Source) HWY_ATTR { quantise_as<Source>(source, hidden, elements, scales); });
}

void dequantise(const std::byte* elements, const float* scales, std::size_t hidden, std::byte* target,
                DType target_dtype) {
  with_format(target_dtype, [=]<class Target>(Target) HWY_ATTR {
    write_row<Target>(target, hidden, Store::cached, Dequantised{elements, scales});
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(quantise);
HWY_EXPORT(dequantise);

void quantise_row(const std::byte* source, DType source_dtype, std::size_t hidden, std::uint8_t* elements,
                  float* scales) {
  HWY_DYNAMIC_DISPATCH(quantise)(source, source_dtype, hidden, reinterpret_cast<std::byte*>(elements), scales);
}

void dequantise_row(const std::uint8_t* elements, const float* scales, std::size_t hidden, std::byte* target,
                    DType target_dtype) {
  HWY_DYNAMIC_DISPATCH(dequantise)(reinterpret_cast<const std::byte*>(elements), scales, hidden, target, target_dtype);
}

}  // namespace shunt
#endif
