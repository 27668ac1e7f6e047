// The example of README: four ranks as threads, sixteen experts, one dispatch and one combine.
#include <cstdint>
#include <cstdio>
#include <shunt/shunt.hpp>
#include <vector>

int main() {
  shunt::World::spawn(4, [](shunt::World& world) {
    auto engine = shunt::Engine(world, {.hidden = 8, .dtype = shunt::f32});
    auto map = shunt::ExpertMap::contiguous(16, world.size());

    std::vector<float> x(2 * 8, 1.0f);                   // two tokens of this rank
    std::vector<std::int32_t> experts = {0, 5, 15, -1};  // top-2 each; -1 = dropped
    std::vector<float> weights = {0.25f, 0.75f, 0.5f, 0.0f};

    auto plan = engine.plan({.experts = experts, .weights = weights, .topk = 2}, map);
    auto rows = engine.dispatch(plan, shunt::borrow(x.data(), shunt::f32, 2, 8)).wait();  // grouped by expert
    auto out = engine.combine(plan, rows.data).wait();                                    // [tokens, hidden]

    if (world.rank().value == 0)
      std::printf("rows here: %d, out: %.2f %.2f\n", static_cast<int>(plan.num_rows()), out.as<float>()[0],
                  out.as<float>()[8]);
  });
}
