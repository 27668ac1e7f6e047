// The example of docs/tutorials/on-gpus.md: the README's example with rows on a GPU that the four ranks share.
#include <cstdint>
#include <cstdio>
#include <shunt/shunt.hpp>
#include <vector>

int main() {
  try {
    shunt::World::spawn(4, [](shunt::World& world) {
      auto engine = shunt::Engine(world, {.hidden = 8, .dtype = shunt::f32, .device = {{.index = 0}}});
      auto map = shunt::ExpertMap::contiguous(16, world.size());

      std::vector<float> tokens(2 * 8, 1.0f);              // two tokens of this rank
      std::vector<std::int32_t> experts = {0, 5, 15, -1};  // top-2 each; -1 = dropped
      std::vector<float> weights = {0.25f, 0.75f, 0.5f, 0.0f};
      auto x = engine.allocate(shunt::f32, 2, 8);  // on the GPU
      engine.copy(shunt::borrow(tokens.data(), shunt::f32, 2, 8), x);

      auto plan = engine.plan({.experts = experts, .weights = weights, .topk = 2}, map);
      auto rows = engine.dispatch(plan, x).wait();           // grouped by expert
      auto result = engine.combine(plan, rows.data).wait();  // [tokens, hidden]

      std::vector<float> out(2 * 8);
      engine.copy(result, shunt::borrow(out.data(), shunt::f32, 2, 8));
      if (world.rank().value == 0)
        std::printf("rows here: %d, out: %.2f %.2f\n", static_cast<int>(plan.num_rows()), out[0], out[8]);
    });
  } catch (const shunt::Error& error) {  // for example, if there is no GPU
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
