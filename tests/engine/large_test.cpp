// Shuffles too large for the cache take another path through memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/store.hpp"
#include "shunt/engine.hpp"

namespace shunt::test {
namespace {

constexpr std::int64_t kHidden = 2048;
constexpr std::size_t kRowBytes = kHidden * sizeof(float);

// The fewest tokens whose rows are written past the cache; 0 if this build or machine never does that.
std::int64_t num_streamed_tokens() {
  for (std::int64_t tokens = 64; tokens <= 32768; tokens *= 2)
    if (choose_store(static_cast<std::size_t>(tokens) * kRowBytes) == Store::streaming) return tokens;
  return 0;
}

std::vector<float> rows_of(std::int32_t source, std::int64_t tokens, float factor) {
  std::vector<float> rows(static_cast<std::size_t>(tokens * kHidden));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = factor * static_cast<float>((i * 7 + i / kHidden) % 8191 + source);
  return rows;
}

bool same(const Tensor& actual, std::int64_t first_row, const std::vector<float>& expected) {
  return std::memcmp(actual.row(first_row), expected.data(), expected.size() * sizeof(float)) == 0;
}

TEST(LargeShuffle, IsWholeWhenItsTicketIs) {
  const std::int64_t tokens = num_streamed_tokens();
  if (tokens == 0) GTEST_SKIP() << "this build writes everything through the cache";
  World::spawn(2, [=](World& world) {
    const std::int32_t self = world.rank().value;
    Engine engine(world, {.hidden = kHidden, .dtype = f32});
    std::vector<std::int32_t> experts;
    std::vector<float> weights;
    for (std::int64_t token = 0; token < tokens; ++token) {
      experts.insert(experts.end(), {0, 1});
      weights.insert(weights.end(), {0.5f, 0.25f});
    }
    const Plan plan = engine.plan({experts, weights, 2}, ExpertMap::contiguous(2, 2));
    const auto x = rows_of(self, tokens, 1.0f);
    const ConstTensor x_rows = borrow(static_cast<const void*>(x.data()), f32, tokens, kHidden);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Rows rows = engine.dispatch(plan, x_rows).wait();
      EXPECT_TRUE(same(rows.data, 0, rows_of(0, tokens, 1.0f)));
      EXPECT_TRUE(same(rows.data, tokens, rows_of(1, tokens, 1.0f)));
      EXPECT_TRUE(same(engine.combine(plan, rows.data).wait(), 0, rows_of(self, tokens, 0.75f)));
      const float weight = self == 0 ? 0.5f : 0.25f;
      const Tensor gradients = engine.combine_backward(plan, x_rows, rows.data).wait().rows;
      EXPECT_TRUE(same(gradients, 0, rows_of(0, tokens, weight)));
      EXPECT_TRUE(same(gradients, tokens, rows_of(1, tokens, weight)));
    }
  });
}

}  // namespace
}  // namespace shunt::test
