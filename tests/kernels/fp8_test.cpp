#include "kernels/fp8.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "bench/reference/rows.hpp"
#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

TEST(Fp8, EveryTargetQuantisesAsTheScalarRuleSays) {
  on_every_target([] {
    EXPECT_TRUE(rc::check([] {
      std::mt19937 random(*rc::gen::arbitrary<unsigned>());
      const auto hidden = *rc::gen::inRange<std::size_t>(0, 700);
      const DType dtype = *rc::gen::elementOf(kFloatTypes);
      const GuardedBytes source = random_row(random, dtype, hidden, *rc::gen::element(0u, 1u, 200u));
      GuardedBytes elements(hidden, random());
      GuardedBytes scales(4 * scales_per_row(hidden), 0);
      quantise_row(source.data(), dtype, hidden, reinterpret_cast<std::uint8_t*>(elements.data()),
                   reinterpret_cast<float*>(scales.data()));

      const QuantisedRow expected = reference_quantise(widened({source.data(), hidden * size_of(dtype)}, dtype));
      for (std::size_t i = 0; i < hidden; ++i)
        RC_ASSERT(read<std::uint8_t>(elements.data() + i) == expected.elements[i]);
      for (std::size_t block = 0; block < scales_per_row(hidden); ++block)
        RC_ASSERT(same(element(scales.data(), f32, block), expected.scales[block]));
      RC_ASSERT(elements.guards_intact());
      RC_ASSERT(scales.guards_intact());
    }));
  });
}

TEST(Fp8, EveryTargetDequantisesAsTheScalarRuleSays) {
  on_every_target([] {
    EXPECT_TRUE(rc::check([] {
      std::mt19937 random(*rc::gen::arbitrary<unsigned>());
      const auto hidden = *rc::gen::inRange<std::size_t>(0, 700);
      const DType dtype = *rc::gen::elementOf(kFloatTypes);
      std::vector<std::uint8_t> elements(hidden);
      for (std::uint8_t& bits : elements) bits = static_cast<std::uint8_t>(random());
      std::vector<float> scales(scales_per_row(hidden));
      for (float& scale : scales) scale = random() % 4 == 0 ? odd_value(random) : moderate(random);
      GuardedBytes target(hidden * size_of(dtype), random());
      dequantise_row(elements.data(), scales.data(), hidden, target.data(), dtype);

      for (std::size_t i = 0; i < hidden; ++i)
        RC_ASSERT(same(element(target.data(), dtype, i),
                       rounded_to(reference_f32_from_e4m3(elements[i]) * scales[i / kScaleBlock], dtype)));
      RC_ASSERT(target.guards_intact());
    }));
  });
}

// 448 leads each block, so the factor is 1 and the quantised element is the narrowed one.
TEST(Fp8, NarrowsEveryKindOfFloatAsTheScalarConversionDoes) {
  std::vector<float> values;
  for (const float value : every_narrowing_case()) {
    if (!(std::abs(value) <= 448.0f)) continue;
    if (values.size() % kScaleBlock == 0) values.push_back(448.0f);
    values.push_back(value);
  }
  on_every_target([&] {
    std::vector<std::uint8_t> elements(values.size());
    std::vector<float> scales(scales_per_row(values.size()));
    quantise_row(reinterpret_cast<const std::byte*>(values.data()), f32, values.size(), elements.data(), scales.data());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(elements[i], e4m3_from_f32(values[i])) << values[i];
  });
}

TEST(Fp8, ABlockOfZerosComesBackAsZeros) {
  const std::vector<float> zeros(kScaleBlock + 5);
  on_every_target([&] {
    std::vector<std::uint8_t> elements(zeros.size(), 0xff);
    std::vector<float> scales(2);
    quantise_row(reinterpret_cast<const std::byte*>(zeros.data()), f32, zeros.size(), elements.data(), scales.data());
    std::vector<float> back(zeros.size(), 1.0f);
    dequantise_row(elements.data(), scales.data(), back.size(), reinterpret_cast<std::byte*>(back.data()), f32);
    EXPECT_EQ(back, zeros);
  });
}

TEST(Fp8, OneInfinityTurnsItsBlockAndNoOtherIntoNan) {
  std::vector<float> values(3 * kScaleBlock, 1.0f);
  values[kScaleBlock + 77] = -INFINITY;
  on_every_target([&] {
    std::vector<std::uint8_t> elements(values.size());
    std::vector<float> scales(3);
    quantise_row(reinterpret_cast<const std::byte*>(values.data()), f32, values.size(), elements.data(), scales.data());
    std::vector<float> back(values.size());
    dequantise_row(elements.data(), scales.data(), back.size(), reinterpret_cast<std::byte*>(back.data()), f32);
    for (std::size_t i = 0; i < back.size(); ++i) EXPECT_EQ(std::isnan(back[i]), i / kScaleBlock == 1) << i;
  });
}

}  // namespace
}  // namespace shunt::test
