// The unit of work of every kernel: 32 consecutive elements, as fp32 in registers. 32 elements of a 16-bit row are a
// cache line, and correspond to the 32 lanes of dot.hpp.

#if defined(SHUNT_KERNELS_GROUP_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_KERNELS_GROUP_INL_HPP
#undef SHUNT_KERNELS_GROUP_INL_HPP
#else
#define SHUNT_KERNELS_GROUP_INL_HPP
#endif

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/formats-inl.hpp"
#include "kernels/ways-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kGroup = 32;
inline constexpr std::size_t kLanes = hn::MaxLanes(Floats());
inline constexpr std::size_t kVectors = kGroup / kLanes;

struct Group {
  FloatVector vectors[kVectors];
};

// Extent of a group: whole, or the first `count` elements.
struct Whole {};
struct Part {
  std::size_t count;
};

HWY_INLINE Group splat(float value) {
  Group group;
  for (FloatVector& vector : group.vectors) vector = hn::Set(Floats(), value);
  return group;
}

HWY_INLINE Group add(const Group& a, const Group& b) {
  Group sum;
  for (std::size_t v = 0; v < kVectors; ++v) sum.vectors[v] = hn::Add(a.vectors[v], b.vectors[v]);
  return sum;
}

HWY_INLINE Group multiply(const Group& a, const Group& b) {
  Group product;
  for (std::size_t v = 0; v < kVectors; ++v) product.vectors[v] = hn::Mul(a.vectors[v], b.vectors[v]);
  return product;
}

// The same bits as storing in Format and loading again.
template <class Format>
HWY_INLINE Group round_to(const Group& group) {
  Group rounded;
  for (std::size_t v = 0; v < kVectors; ++v) rounded.vectors[v] = Format::round(group.vectors[v]);
  return rounded;
}

template <class Format>
inline constexpr std::size_t kElementBytes = sizeof(typename Format::Bits);

template <class Format>
HWY_INLINE Group load(const std::byte* row, std::size_t first, Whole) {
  using Bits = typename Format::Bits;
  const Narrow<Bits> d;
  // Loaded as bytes and then reinterpreted, because rows need not be aligned, not even to their elements.
  const hn::Repartition<std::uint8_t, Narrow<Bits>> bytes;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(row) + first * sizeof(Bits);
  Group group;
  for (std::size_t v = 0; v < kVectors; ++v)
    group.vectors[v] = Format::widen(hn::BitCast(d, hn::LoadU(bytes, from + v * kLanes * sizeof(Bits))));
  return group;
}

template <>
HWY_INLINE Group load<Bf16PairsFormat>(const std::byte* row, std::size_t first, Whole) {
  const Bf16PairsFormat::Words d;
  const hn::Repartition<std::uint8_t, Bf16PairsFormat::Words> bytes;
  const auto* const from = reinterpret_cast<const std::uint8_t*>(row) + first * sizeof(std::uint16_t);
  Group group;
  for (std::size_t v = 0; v < kVectors; v += 2) {
    const auto words = hn::BitCast(d, hn::LoadU(bytes, from + v * kLanes * sizeof(std::uint16_t)));
    group.vectors[v] = Bf16PairsFormat::even(words);
    group.vectors[v + 1] = Bf16PairsFormat::odd(words);
  }
  return group;
}

// A copy of part of a group, filled up with +0.
template <class Format>
struct Padded {
  Padded(const std::byte* row, std::size_t first, Part part) {
    std::memcpy(bytes.data(), row + first * kElementBytes<Format>, part.count * kElementBytes<Format>);
  }

  std::array<std::byte, kGroup * kElementBytes<Format>> bytes{};
};

template <class Format>
HWY_INLINE Group load(const std::byte* row, std::size_t first, Part part) {
  return load<Format>(Padded<Format>(row, first, part).bytes.data(), 0, Whole());
}

// Way: ThroughCache or PastCache.
template <class Format, class Way>
HWY_INLINE void store(const Group& group, std::byte* row, std::size_t first) {
  using Bits = typename Format::Bits;
  std::byte* const to = row + first * sizeof(Bits);
  if constexpr (std::is_same_v<Format, Bf16PairsFormat>) {
    for (std::size_t v = 0; v < kVectors; v += 2)
      Way::store(Bf16PairsFormat::Words(), Bf16PairsFormat::join(group.vectors[v], group.vectors[v + 1]),
                 to + v * kLanes * sizeof(Bits));
  } else if constexpr (sizeof(Bits) == sizeof(float)) {
    for (std::size_t v = 0; v < kVectors; ++v) Way::store(Floats(), group.vectors[v], to + v * kLanes * sizeof(Bits));
  } else {
    for (std::size_t v = 0; v < kVectors; v += 2)
      Way::store(NarrowPair<Bits>(), Format::narrow(group.vectors[v], group.vectors[v + 1]),
                 to + v * kLanes * sizeof(Bits));
  }
}

template <class Format>
HWY_INLINE void store(const Group& group, std::byte* row, std::size_t first, Whole) {
  store<Format, ThroughCache>(group, row, first);
}

template <class Format>
HWY_INLINE void store(const Group& group, std::byte* row, std::size_t first, Part part) {
  std::array<std::byte, kGroup * kElementBytes<Format>> padded;
  store<Format>(group, padded.data(), 0, Whole());
  std::memcpy(row + first * kElementBytes<Format>, padded.data(), part.count * kElementBytes<Format>);
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#endif
