// The definition of an expert that devices are compared with.
#include "layer/reference_expert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

TEST(RelativeError, IsNotAVerdictThatNaNPasses) {
  const std::vector<float> expected = {3, 4};
  EXPECT_EQ(relative_error(expected, expected), 0);
  EXPECT_DOUBLE_EQ(relative_error(std::vector<float>{3, 9}, expected), 1);
  const double error = relative_error(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 4}, expected);
  EXPECT_FALSE(error <= tolerance_of(bf16));
  EXPECT_FALSE(relative_error(std::vector<float>{0, 1}, std::vector<float>{0, 0}) <= tolerance_of(bf16));
}

}  // namespace
}  // namespace shunt
