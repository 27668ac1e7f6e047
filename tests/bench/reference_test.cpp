// The reference implementations.
#include "bench/reference/expert.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "bench/reference/rows.hpp"
#include "shunt/float_formats.hpp"

namespace shunt {
namespace {

TEST(ReferenceExpert, IsGateTimesUpThenDown) {
  // gate(x) = x0 + x1, up(x) = (2 x0, 3 x1), down(a) = (a0, a1, a0 − a1)
  const ReferenceExpert expert{.hidden = 3,
                               .ffn = 2,
                               .dtype = f32,
                               .gate_up = {1, 1, 0, 1, 1, 0, 2, 0, 0, 0, 3, 0},
                               .down = {1, 0, 0, 1, 1, -1}};
  const std::vector<float> x = {0.5f, 0.25f, 100.0f};
  const float silu = 0.75f / (1.0f + std::exp(-0.75f));
  const std::vector<float> y = expert.apply(x);
  ASSERT_EQ(y.size(), 3u);
  EXPECT_FLOAT_EQ(y[0], silu * 1.0f);
  EXPECT_FLOAT_EQ(y[1], silu * 0.75f);
  EXPECT_FLOAT_EQ(y[2], silu * 0.25f);
}

TEST(ReferenceExpert, RoundsEveryStepToItsDtype) {
  ReferenceExpert expert{.hidden = 1, .ffn = 1, .dtype = bf16, .gate_up = {1, 1}, .down = {1}};
  const float x = 1.0f + 0x1p-7f;
  const float activated = rounded_to(x / (1.0f + std::exp(-x)) * x, bf16);
  EXPECT_EQ(expert.apply(std::span(&x, 1)), std::vector<float>{activated});
  EXPECT_NE(activated, x / (1.0f + std::exp(-x)) * x);
}

TEST(RelativeError, ExceedsEveryToleranceForNaN) {
  const std::vector<float> expected = {3, 4};
  EXPECT_EQ(relative_error(expected, expected), 0);
  EXPECT_DOUBLE_EQ(relative_error(std::vector<float>{3, 9}, expected), 1);
  const double error = relative_error(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 4}, expected);
  EXPECT_FALSE(error <= tolerance_of(bf16));
  EXPECT_FALSE(relative_error(std::vector<float>{0, 1}, std::vector<float>{0, 0}) <= tolerance_of(bf16));
}

TEST(ReferenceFp8, HasTheValuesOfTheFormat) {
  EXPECT_EQ(reference_f32_from_e4m3(0x00), 0.0f);
  EXPECT_EQ(reference_f32_from_e4m3(0x01), 0x1p-9f);      // least subnormal
  EXPECT_EQ(reference_f32_from_e4m3(0x07), 7 * 0x1p-9f);  // largest subnormal
  EXPECT_EQ(reference_f32_from_e4m3(0x08), 0x1p-6f);      // least normal
  EXPECT_EQ(reference_f32_from_e4m3(0x38), 1.0f);
  EXPECT_EQ(reference_f32_from_e4m3(0x7e), 448.0f);
  EXPECT_EQ(reference_f32_from_e4m3(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(reference_f32_from_e4m3(0x7f)));
}

TEST(ReferenceFp8, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(reference_e4m3_from_f32(1.0625f), 0x38);  // half-way from 1 to 1.125
  EXPECT_EQ(reference_e4m3_from_f32(1.1875f), 0x3a);  // half-way from 1.125 to 1.25
  EXPECT_EQ(reference_e4m3_from_f32(std::nextafter(1.0625f, 2.0f)), 0x39);
  EXPECT_EQ(reference_e4m3_from_f32(0x1p-10f), 0x00);  // half-way to the least subnormal
  EXPECT_EQ(reference_e4m3_from_f32(-0x1.8p-9f), 0x82);
  EXPECT_EQ(reference_e4m3_from_f32(1e9f), 0x7e);
  EXPECT_EQ(reference_e4m3_from_f32(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(reference_e4m3_from_f32(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

// Compares two definitions: by the 256 code points, and by the bits of a float.
TEST(ReferenceFp8, AgreesWithTheScalarConversions) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(reference_f32_from_e4m3(bits)),
              std::bit_cast<std::uint32_t>(f32_from_e4m3(bits)));
  }
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(reference_e4m3_from_f32(value), e4m3_from_f32(value)) << value;
  }
}

TEST(ReferenceFp8, ScalesEveryBlockByItsLargestMagnitude) {
  std::vector<float> values(kScaleBlock + 2, 0.5f);
  values[3] = -4.0f;
  values[kScaleBlock] = 0.0f;
  values[kScaleBlock + 1] = 0.0f;
  const QuantisedRow row = reference_quantise(values);
  EXPECT_EQ(row.scales, (std::vector<float>{4.0f / 448.0f, 0x1p-100f / 448.0f}));
  EXPECT_EQ(row.elements[3], 0xfe);
  EXPECT_EQ(row.elements[0], 0x66);  // 56
  EXPECT_EQ(row.elements[kScaleBlock], 0x00);
  values[0] = std::numeric_limits<float>::infinity();
  const QuantisedRow without_scale = reference_quantise(values);
  EXPECT_TRUE(std::isnan(without_scale.scales[0]));
  EXPECT_EQ(without_scale.elements[7], 0x7f);
  EXPECT_EQ(without_scale.elements[kScaleBlock], 0x00);
}

}  // namespace
}  // namespace shunt
