#include "kernels/scale.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

void check_scale(DType from, DType to, Store store) {
  EXPECT_TRUE(rc::check([=] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto hidden = *rc::gen::inRange<std::size_t>(0, 300);
    const float weight = *rc::gen::element(1.0f, 0.37f, -2.5f, 1e-6f, 1e30f, 0.0f, -0.0f);
    const GuardedBytes source = random_row(random, from, hidden, 3);
    GuardedBytes target(hidden * size_of(to), random());
    scale_row(source.data(), from, weight, hidden, target.data(), to, store);
    flush_streaming();
    for (std::size_t i = 0; i < hidden; ++i)
      RC_ASSERT(same(element(target.data(), to, i), rounded_to(weight * element(source.data(), from, i), to)));
    RC_ASSERT(target.guards_intact());
  })) << to_string(from)
      << " to " << to_string(to);
}

TEST(Scale, EveryTargetGivesTheScalarResult) {
  on_every_target([] {
    for (const DType from : kFloatTypes)
      for (const DType to : kFloatTypes)
        for (const Store store : {Store::cached, Store::streaming}) check_scale(from, to, store);
  });
}

TEST(Scale, WidensEvery16BitValueAsTheScalarConversionDoes) {
  const GuardedBytes source = every_16_bit_pattern();
  on_every_target([&] {
    for (const DType dtype : {bf16, f16}) {
      std::vector<float> wide(65536);
      scale_row(source.data(), dtype, 1.0f, wide.size(), reinterpret_cast<std::byte*>(wide.data()), f32, Store::cached);
      for (std::size_t i = 0; i < wide.size(); ++i)
        ASSERT_TRUE(same(wide[i], element(source.data(), dtype, i))) << to_string(dtype) << " pattern " << i;
    }
  });
}

TEST(Scale, NarrowsEveryKindOfFloatAsTheScalarConversionDoes) {
  const std::vector<float> values = every_narrowing_case();
  const auto* const source = reinterpret_cast<const std::byte*>(values.data());
  on_every_target([&] {
    for (const DType dtype : {bf16, f16}) {
      std::vector<std::uint16_t> narrow(values.size());
      scale_row(source, f32, 1.0f, values.size(), reinterpret_cast<std::byte*>(narrow.data()), dtype, Store::cached);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(narrow[i], dtype == bf16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]))
            << to_string(dtype) << " of " << values[i] << ", case " << i;
    }
  });
}

}  // namespace
}  // namespace shunt::test
