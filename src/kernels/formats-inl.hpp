// Row formats in SIMD: fp32 vectors in registers, narrow bits in memory.
//
// The conversions implement include/shunt/float_formats.hpp with integer operations, because Highway's conversions (and
// the instructions that they use) differ between targets for NaN, infinity, subnormals or rounding.

#if defined(SHUNT_KERNELS_FORMATS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_KERNELS_FORMATS_INL_HPP
#undef SHUNT_KERNELS_FORMATS_INL_HPP
#else
#define SHUNT_KERNELS_FORMATS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;  // a group of 32 then has at least two vectors
using Ints = hn::RebindToSigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using IntVector = hn::Vec<Ints>;

// The narrow vector that widens to one vector of floats, and the one to which a pair of them narrows.
template <class Bits>
using Narrow = hn::Rebind<Bits, Floats>;
template <class Bits>
using NarrowPair = hn::Twice<Narrow<Bits>>;

HWY_INLINE IntVector magnitude_of(FloatVector value) { return hn::BitCast(Ints(), hn::Abs(value)); }

inline constexpr std::int32_t kInfinityBits = 0x7f80'0000;
inline constexpr std::int32_t kQuietNanBits = 0x7fc0'0000;

struct F32Format {
  using Bits = float;

  static HWY_INLINE FloatVector widen(FloatVector value) { return value; }
  static HWY_INLINE FloatVector round(FloatVector value) { return value; }
};

struct Bf16Format {
  using Bits = std::uint16_t;

  static HWY_INLINE FloatVector widen(hn::Vec<Narrow<Bits>> bits) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Ints(), bits)));
  }

  static HWY_INLINE hn::Vec<NarrowPair<Bits>> narrow(FloatVector low, FloatVector high) {
    const NarrowPair<Bits> d;
    return hn::ConcatOdd(d, hn::BitCast(d, nearest(high)), hn::BitCast(d, nearest(low)));
  }

  static HWY_INLINE FloatVector round(FloatVector value) {
    return hn::BitCast(Floats(), hn::And(nearest(value), hn::Set(Ints(), ~0xffff)));
  }

  // The result is in the upper half of each lane; the lower half is unspecified.
  static HWY_INLINE IntVector nearest(FloatVector value) {
    const Ints d;
    const IntVector bits = hn::BitCast(d, value);
    const IntVector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const IntVector rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
    const IntVector nan = hn::Or(hn::And(bits, hn::Set(d, INT32_MIN)), hn::Set(d, kQuietNanBits));
    return hn::IfThenElse(hn::Gt(magnitude_of(value), hn::Set(d, kInfinityBits)), nan, rounded);
  }
};

// bf16 elements in pairs: the even elements of a line in one vector, the odd ones in the next. Takes fewer instructions
// than Bf16Format, which leaves the processor more room for loads in flight. For kernels that treat all elements alike.
struct Bf16PairsFormat {
  using Bits = std::uint16_t;
  using Words = hn::RebindToUnsigned<Floats>;

  static HWY_INLINE FloatVector even(hn::Vec<Words> words) { return hn::BitCast(Floats(), hn::ShiftLeft<16>(words)); }
  static HWY_INLINE FloatVector odd(hn::Vec<Words> words) {
    return hn::BitCast(Floats(), hn::And(words, hn::Set(Words(), 0xffff'0000u)));
  }
  static HWY_INLINE hn::Vec<Words> join(FloatVector even, FloatVector odd) {
    const Words d;
    const auto low = hn::ShiftRight<16>(hn::BitCast(d, Bf16Format::nearest(even)));
    return hn::Or(low, hn::And(hn::BitCast(d, Bf16Format::nearest(odd)), hn::Set(d, 0xffff'0000u)));
  }
};

constexpr float power_of_two(int exponent) {
  float power = 1.0f;
  for (; exponent > 0; --exponent) power *= 2.0f;
  for (; exponent < 0; ++exponent) power *= 0.5f;
  return power;
}

// A format with its own exponent range, which Layout describes.
template <class Layout>
struct SmallFormat {
  using Bits = typename Layout::Bits;

  static constexpr int kWidth = 8 * static_cast<int>(sizeof(Bits));
  static constexpr int kDropped = 23 - Layout::kMantissaBits;

  static HWY_INLINE FloatVector widen(hn::Vec<Narrow<Bits>> bits) {
    const Ints d;
    const hn::RebindToSigned<Narrow<Bits>> narrow_ints;
    constexpr std::int32_t kSignAndMagnitude = INT32_MIN | (((1 << (kWidth - 1)) - 1) << kDropped);
    const IntVector shifted = hn::ShiftLeft<kDropped>(hn::PromoteTo(d, hn::BitCast(narrow_ints, bits)));
    const FloatVector biased = hn::BitCast(Floats(), hn::And(shifted, hn::Set(d, kSignAndMagnitude)));
    // The exponent still has the small bias; the multiplication corrects it, and normalises subnormals.
    const FloatVector value = hn::Mul(biased, hn::Set(Floats(), power_of_two(127 - Layout::kBias)));
    // At this point, infinity and NaN are finite numbers above all others; setting all exponent bits restores them.
    const auto is_special = hn::Ge(hn::Abs(value), hn::Set(Floats(), Layout::kFirstSpecial));
    const FloatVector all_exponent_bits = hn::BitCast(Floats(), hn::Set(d, kInfinityBits));
    return hn::Or(value, hn::IfThenElseZero(is_special, all_exponent_bits));
  }

  static HWY_INLINE hn::Vec<NarrowPair<Bits>> narrow(FloatVector low, FloatVector high) {
    const NarrowPair<std::uint16_t> d;
    const auto codes = hn::ConcatEven(d, hn::BitCast(d, nearest(high)), hn::BitCast(d, nearest(low)));
    if constexpr (kWidth == 16) {
      return codes;
    } else {
      return hn::DemoteTo(NarrowPair<Bits>(), hn::BitCast(hn::RebindToSigned<decltype(d)>(), codes));
    }
  }

  static HWY_INLINE FloatVector round(FloatVector value) { return widen(hn::DemoteTo(Narrow<Bits>(), nearest(value))); }

 private:
  // Adding 2^kDropped times the value's power of two (or the common one of subnormals) makes the addition round to the
  // small mantissa, which is then an integer in the low bits of the sum.
  static HWY_INLINE IntVector nearest(FloatVector value) {
    const Ints d;
    constexpr std::int32_t kSubnormalPower = (128 - Layout::kBias) << 23;
    // Clamped as integers, which clamps NaN too.
    const IntVector limit = hn::BitCast(d, hn::Set(Floats(), Layout::kClamp));
    const IntVector clamped = hn::Min(magnitude_of(value), limit);
    const IntVector power = hn::Max(hn::And(clamped, hn::Set(d, kInfinityBits)), hn::Set(d, kSubnormalPower));
    const IntVector shifter = hn::Add(power, hn::Set(d, kDropped << 23));
    const IntVector sum = hn::BitCast(d, hn::Add(hn::BitCast(Floats(), clamped), hn::BitCast(Floats(), shifter)));
    const IntVector mantissa = hn::Sub(sum, shifter);
    const IntVector steps = hn::ShiftRight<kDropped>(hn::Sub(power, hn::Set(d, kSubnormalPower)));
    const auto is_nan = hn::Gt(magnitude_of(value), hn::Set(d, kInfinityBits));
    const IntVector magnitude = hn::IfThenElse(is_nan, hn::Set(d, Layout::kQuietNan), hn::Add(mantissa, steps));
    const IntVector sign = hn::And(hn::ShiftRight<32 - kWidth>(hn::BitCast(d, value)), hn::Set(d, 1 << (kWidth - 1)));
    return hn::Or(magnitude, sign);
  }
};

struct F16Layout {
  using Bits = std::uint16_t;
  static constexpr int kMantissaBits = 10;
  static constexpr int kBias = 15;
  static constexpr float kClamp = 65536.0f;  // narrows to infinity, as all greater values do
  static constexpr float kFirstSpecial = 65536.0f;
  static constexpr std::int32_t kQuietNan = 0x7e00;
};

struct E4m3Layout {
  using Bits = std::uint8_t;
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr float kClamp = 448.0f;
  static constexpr float kFirstSpecial = 480.0f;
  static constexpr std::int32_t kQuietNan = 0x7f;
};

using F16Format = SmallFormat<F16Layout>;
using E4m3Format = SmallFormat<E4m3Layout>;

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#endif
