#include "support/round_trip.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

namespace shunt::test {

void round_trip(Engine& engine, const World& world, std::int64_t tokens, std::uint32_t seed,
                const std::function<void()>& before) {
  const std::int32_t num_experts = 2 * world.size();
  std::minstd_rand random(seed * 101 + static_cast<std::uint32_t>(world.rank().value) + 1);
  // Two different ones per token.
  std::vector<std::int32_t> experts;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto first = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(num_experts));
    const auto step = static_cast<std::int32_t>(1 + random() % static_cast<std::uint32_t>(num_experts - 1));
    experts.insert(experts.end(), {first, (first + step) % num_experts});
  }
  std::vector<float> x(static_cast<std::size_t>(tokens * engine.options().hidden));
  for (auto& element : x) element = static_cast<float>(random() % 1000);

  if (before) before();
  const Plan plan = engine.plan({experts, {}, 2}, ExpertMap::contiguous(num_experts, world.size()));
  if (before) before();
  const Rows rows = engine.dispatch(plan, borrow(x.data(), f32, tokens, engine.options().hidden)).wait();
  if (before) before();
  const Tensor back = engine.combine(plan, rows.data).wait();
  if (!std::equal(x.begin(), x.end(), back.as<float>().begin(), [](float sent, float sum) { return sum == 2 * sent; }))
    throw std::runtime_error("a row did not come back twice");
}

void round_trip(World& world, std::uint32_t seed) {
  Engine engine(world, {.hidden = 64, .dtype = f32});
  round_trip(engine, world, 16, seed);
}

}  // namespace shunt::test
