// Rows for kernel tests: any bits, any alignment, guarded on both sides.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "bench/reference/rows.hpp"
#include "shunt/dtype.hpp"
#include "shunt/float_formats.hpp"

namespace shunt::test {

inline constexpr std::array kFloatTypes = {f32, bf16, f16};

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

inline float element(const std::byte* row, DType dtype, std::size_t i) {
  return widened({row + i * size_of(dtype), size_of(dtype)}, dtype).front();
}

/// The same bits, or both NaN: the processor chooses the NaN that an addition returns.
inline bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Bytes at a chosen offset from a cache line, between guard bytes that must not change.
class GuardedBytes {
 public:
  GuardedBytes(std::size_t bytes, std::size_t misalignment) : storage_(bytes + 4 * kGuard, kUntouched), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    offset_ = kGuard + (-address % kGuard) + misalignment % kGuard;
  }

  std::byte* data() { return storage_.data() + offset_; }
  [[nodiscard]] const std::byte* data() const { return storage_.data() + offset_; }

  [[nodiscard]] bool guards_intact() const {
    for (std::size_t i = 0; i < storage_.size(); ++i)
      if ((i < offset_ || i >= offset_ + bytes_) && storage_[i] != kUntouched) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xa5};

  std::vector<std::byte> storage_;
  std::size_t bytes_;
  std::size_t offset_;
};

inline float moderate(std::mt19937& random) { return std::normal_distribution<float>()(random); }

/// A value that conversions and sums treat specially, or random bits.
inline float odd_value(std::mt19937& random) {
  constexpr std::array kOdd = {0.0f,     -0.0f,    INFINITY, -INFINITY, NAN,    -NAN,      0x1p-149f,  -0x1p-126f,
                               0x1p-25f, 65504.0f, 65520.0f, 0x1p-133f, 448.0f, -3.39e38f, 0x1.8p-24f, 0x1.01p-14f};
  const std::size_t choice = random() % (2 * kOdd.size());
  return choice < kOdd.size() ? kOdd[choice] : std::bit_cast<float>(static_cast<std::uint32_t>(random()));
}

/// Elements of ordinary size; on average, one in `odd_every` is an odd_value() (0: none).
inline GuardedBytes random_row(std::mt19937& random, DType dtype, std::size_t hidden, unsigned odd_every) {
  GuardedBytes row(hidden * size_of(dtype), random());
  for (std::size_t i = 0; i < hidden; ++i) {
    const float value = odd_every != 0 && random() % odd_every == 0 ? odd_value(random) : moderate(random);
    std::byte* const to = row.data() + i * size_of(dtype);
    const std::uint16_t narrow = dtype == bf16 ? bf16_from_f32(value) : f16_from_f32(value);
    std::memcpy(to, dtype == f32 ? static_cast<const void*>(&value) : &narrow, size_of(dtype));
  }
  return row;
}

/// All 65536 bit patterns, as a row of either 16-bit type.
inline GuardedBytes every_16_bit_pattern() {
  GuardedBytes row(2 * 65536, 0);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(row.data() + 2 * bits, &narrow, 2);
  }
  return row;
}

/// A value for each sign, exponent and first ten mantissa bits, whose remaining bits are exactly at, below and above a
/// tie of bf16, f16 and e4m3.
inline std::vector<float> every_narrowing_case() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x8'0000; ++high)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu})
      values.push_back(std::bit_cast<float>(high << 13 | low));
  return values;
}

}  // namespace shunt::test
