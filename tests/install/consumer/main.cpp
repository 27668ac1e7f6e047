// Runs one dispatch and combine with the installed headers and archives; exits with 0 if the result is right.
#include <cstdint>
#include <cstdlib>
#include <shunt/shunt.hpp>
#include <vector>

int main() {
  bool right = false;
  shunt::World::spawn(2, [&](shunt::World& world) {
    auto engine = shunt::Engine(world, {.hidden = 4, .dtype = shunt::f32});
    const std::vector<float> x(4, 2.0f);
    const std::vector<std::int32_t> experts = {0, 7};
    const std::vector<float> weights = {0.25f, 0.5f};
    const auto plan =
        engine.plan({.experts = experts, .weights = weights, .topk = 2}, shunt::ExpertMap::contiguous(8, world.size()));
    const auto rows = engine.dispatch(plan, shunt::borrow(x.data(), shunt::f32, 1, 4)).wait();
    const auto out = engine.combine(plan, rows.data).wait();
    if (world.rank() == shunt::RankId(0)) right = out.as<float>()[3] == 1.5f;
  });
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
