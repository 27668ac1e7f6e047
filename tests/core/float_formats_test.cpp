#include "shunt/float_formats.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace shunt {
namespace {

TEST(FloatFormats, EveryNarrowValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    if (!std::isnan(f32_from_bf16(narrow))) {
      ASSERT_EQ(bf16_from_f32(f32_from_bf16(narrow)), narrow);
    }
    if (!std::isnan(f32_from_f16(narrow))) {
      ASSERT_EQ(f16_from_f32(f32_from_f16(narrow)), narrow);
    }
  }
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    const auto narrow = static_cast<std::uint8_t>(bits);
    if (!std::isnan(f32_from_e4m3(narrow))) {
      ASSERT_EQ(e4m3_from_f32(f32_from_e4m3(narrow)), narrow);
    }
  }
}

// The nearest value, ties to the even mantissa, found by comparing both neighbours.
template <class Bits, class Widen, class Narrow>
void expect_nearest_even(Widen widen, Narrow narrow, Bits largest_finite) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const auto below = static_cast<Bits>(random() % largest_finite);
    const auto above = static_cast<Bits>(below + 1);
    const float low = widen(below);
    const float high = widen(above);
    const float middle = low + (high - low) / 2;
    const Bits even = below % 2 == 0 ? below : above;
    ASSERT_EQ(narrow(middle), even) << low << " " << high;
    ASSERT_EQ(narrow(std::nextafter(middle, low)), below) << low << " " << high;
    ASSERT_EQ(narrow(std::nextafter(middle, high)), above) << low << " " << high;
    ASSERT_EQ(narrow(-std::nextafter(middle, low)), static_cast<Bits>(below | (1u << (sizeof(Bits) * 8 - 1))));
  }
}

TEST(FloatFormats, RoundsToNearestTiesToEven) {
  expect_nearest_even<std::uint16_t>(f32_from_bf16, bf16_from_f32, 0x7f7f);
  expect_nearest_even<std::uint16_t>(f32_from_f16, f16_from_f32, 0x7bff);
  expect_nearest_even<std::uint8_t>(f32_from_e4m3, e4m3_from_f32, 0x7e);
}

TEST(FloatFormats, OverflowGoesToInfinityOrSaturates) {
  EXPECT_EQ(f16_from_f32(65519.0f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(e4m3_from_f32(1e9f), 0x7e);
  EXPECT_EQ(e4m3_from_f32(-std::numeric_limits<float>::infinity()), 0xfe);
}

TEST(FloatFormats, NanStaysNanWithItsSign) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(bf16_from_f32(nan), 0x7fc0);
  EXPECT_EQ(f16_from_f32(-nan), 0xfe00);
  EXPECT_EQ(e4m3_from_f32(nan), 0x7f);
  EXPECT_TRUE(std::isnan(f32_from_e4m3(0xff)));
  // A NaN whose payload is only in the low bits must not become infinity.
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

}  // namespace
}  // namespace shunt
