#include "kernels/swiglu.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

/// The definition in the header, step by step.
float scalar_exp(float x) {
  x = std::clamp(x, -swiglu::kLimit, swiglu::kLimit);
  const float n = std::nearbyint(x * swiglu::kLog2E);
  const float r = (x - n * swiglu::kLn2High) - n * swiglu::kLn2Low;
  float sum = swiglu::kExpTerms[0];
  for (std::size_t term = 1; term < std::size(swiglu::kExpTerms); ++term) sum = sum * r + swiglu::kExpTerms[term];
  return sum * std::ldexp(1.0f, static_cast<int>(n));
}

void check_swiglu(DType dtype) {
  EXPECT_TRUE(rc::check([=] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto count = *rc::gen::inRange<std::size_t>(0, 300);
    const unsigned odd_every = *rc::gen::element(0u, 3u);
    const GuardedBytes gate = random_row(random, dtype, count, odd_every);
    const GuardedBytes up = random_row(random, dtype, count, odd_every);
    GuardedBytes target(count * size_of(dtype), random());
    swiglu_row(gate.data(), up.data(), count, dtype, target.data());
    for (std::size_t i = 0; i < count; ++i) {
      const float g = element(gate.data(), dtype, i);
      const float e = std::isnan(g) ? 0.0f : scalar_exp(-g);
      RC_ASSERT(
          same(element(target.data(), dtype, i), rounded_to(g / (1.0f + e) * element(up.data(), dtype, i), dtype)));
    }
    RC_ASSERT(target.guards_intact());
  })) << to_string(dtype);
}

TEST(Swiglu, EveryTargetGivesTheScalarResult) {
  on_every_target([] {
    for (const DType dtype : kFloatTypes) check_swiglu(dtype);
  });
}

TEST(Swiglu, ItsExponentialIsThatOfTheMathsLibrary) {
  for (float x = -87.0f; x <= 87.0f; x += 0.00371f) {
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_LE(std::abs(static_cast<double>(scalar_exp(x)) - expected), 0x1p-22 * expected) << x;
  }
}

TEST(Swiglu, GatesFarFromZeroAreClosedOrOpen) {
  const std::vector<float> gate = {-200.0f, -90.0f, 90.0f, 200.0f};
  const std::vector<float> up = {3.0f, 3.0f, 3.0f, 3.0f};
  std::vector<float> target(gate.size());
  swiglu_row(reinterpret_cast<const std::byte*>(gate.data()), reinterpret_cast<const std::byte*>(up.data()),
             gate.size(), f32, reinterpret_cast<std::byte*>(target.data()));
  EXPECT_NEAR(target[0], 0.0f, 1e-30f);
  EXPECT_NEAR(target[1], 0.0f, 1e-30f);
  EXPECT_EQ(target[2], 270.0f);
  EXPECT_EQ(target[3], 600.0f);
}

}  // namespace
}  // namespace shunt::test
