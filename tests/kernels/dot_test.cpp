#include "kernels/dot.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

float reference_dot(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, std::size_t hidden) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < hidden; ++i) {
    const float product = element(a, a_dtype, i) * element(b, b_dtype, i);
    lanes[i % 32] += product;
  }
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

void check_dot(DType a_dtype, DType b_dtype) {
  EXPECT_TRUE(rc::check([=] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto hidden = *rc::gen::inRange<std::size_t>(0, 500);
    const auto odd_every = *rc::gen::element(0u, 50u, 1000u);
    const GuardedBytes a = random_row(random, a_dtype, hidden, odd_every);
    const GuardedBytes b = random_row(random, b_dtype, hidden, odd_every);
    RC_ASSERT(same(dot(a.data(), a_dtype, b.data(), b_dtype, hidden),
                   reference_dot(a.data(), a_dtype, b.data(), b_dtype, hidden)));
  })) << to_string(a_dtype)
      << " with " << to_string(b_dtype);
}

TEST(Dot, EveryTargetGivesTheScalarResult) {
  on_every_target([] {
    for (const DType a : kFloatTypes)
      for (const DType b : kFloatTypes) check_dot(a, b);
  });
}

TEST(Dot, OfNegativeZerosIsPositiveZero) {
  const std::vector<float> zeros(40, -0.0f);
  const std::vector<float> ones(40, 1.0f);
  on_every_target([&] {
    for (std::size_t hidden = 0; hidden <= 40; ++hidden) {
      const float product = dot(reinterpret_cast<const std::byte*>(zeros.data()), f32,
                                reinterpret_cast<const std::byte*>(ones.data()), f32, hidden);
      EXPECT_TRUE(same(product, 0.0f)) << hidden;
    }
  });
}

}  // namespace
}  // namespace shunt::test
