#include "kernels/add_weighted.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/every_target.hpp"
#include "kernels/reduce.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

void check_add_weighted(DType from, DType to, Store store) {
  EXPECT_TRUE(rc::check([=] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto hidden = *rc::gen::inRange<std::size_t>(0, 300);
    const float weight = *rc::gen::element(1.0f, 0.37f, -2.5f, 1e-6f, 1e30f, 0.0f, -0.0f);
    const GuardedBytes row = random_row(random, from, hidden, 3);
    const GuardedBytes sums = random_row(random, f32, hidden, 3);
    std::vector<float> sum(hidden);
    if (hidden > 0) std::memcpy(sum.data(), sums.data(), hidden * sizeof(float));
    GuardedBytes target(hidden * size_of(to), random());
    add_weighted_row(sum.data(), row.data(), from, weight, hidden, target.data(), to, store);
    flush_streaming();
    for (std::size_t i = 0; i < hidden; ++i)
      RC_ASSERT(same(element(target.data(), to, i), rounded(sum[i] + weight * element(row.data(), from, i), to)));
    RC_ASSERT(target.guards_intact());
  })) << to_string(from)
      << " to " << to_string(to);
}

TEST(AddWeighted, EveryTargetGivesTheScalarResult) {
  on_every_target([] {
    for (const DType from : kFloatTypes)
      for (const DType to : kFloatTypes)
        for (const Store store : {Store::cached, Store::streaming}) check_add_weighted(from, to, store);
  });
}

TEST(AddWeighted, StepsInPlaceGiveTheSumOfARank) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    const auto hidden = *rc::gen::inRange<std::size_t>(1, 100);
    std::vector<GuardedBytes> rows;
    std::vector<Term> terms;
    for (int i = 0; i < 5; ++i) rows.push_back(random_row(random, bf16, hidden, 0));
    for (const GuardedBytes& row : rows) terms.push_back({row.data(), moderate(random), Closes::nothing});
    terms.back().closes = Closes::node;
    std::vector<float> expected(hidden);
    reduce_row(terms, hidden, {bf16, f32, f32}, reinterpret_cast<std::byte*>(expected.data()), Store::cached);

    std::vector<float> sum(hidden);
    auto* const target = reinterpret_cast<std::byte*>(sum.data());
    for (std::size_t i = 0; i < hidden; ++i) sum[i] = terms[0].weight * element(terms[0].row, bf16, i);
    for (std::size_t term = 1; term < terms.size(); ++term)
      add_weighted_row(sum.data(), terms[term].row, bf16, terms[term].weight, hidden, target, f32, Store::cached);
    for (std::size_t i = 0; i < hidden; ++i) RC_ASSERT(same(sum[i], expected[i]));
  }));
}

}  // namespace
}  // namespace shunt::test
