// A whole layer in a CUDA graph: plan, dispatch, experts, combine.
#include <gtest/gtest.h>

#include <random>

#include "core/cuda/captured_graph.hpp"
#include "kernels/cuda/mlp/small_experts.hpp"
#include "kernels/cuda/mlp/tiles.hpp"
#include "shunt/engine.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 2;
constexpr std::int32_t kExperts = 6;
constexpr std::int32_t kTopk = 2;
constexpr std::int64_t kTokens = 150;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kTiles = 8;  // all rows of all ranks, and a tile more per expert that is here
constexpr std::int64_t kMaxRows = kTiles * device::kTileRows;

class Layer {
 public:
  explicit Layer(World& world)
      : generator_(static_cast<unsigned>(world.rank().value)),
        weights_of_experts_(generator_, bf16, kHidden, 48, kExperts / kRanks),
        engine_(world, {.hidden = kHidden,
                        .deadline = std::chrono::seconds(20),
                        .device = DeviceOptions{.index = 0, .heap_bytes = 16 << 20, .max_tokens = kTokens}}),
        experts_(engine_.allocate(f32, kTokens, kTopk)),
        x_(engine_.allocate(bf16, kTokens, kHidden)),
        rows_(engine_.allocate(bf16, kMaxRows, kHidden)),
        expert_out_(engine_.allocate(bf16, kMaxRows, kHidden)),
        result_(engine_.allocate(bf16, kTokens, kHidden)),
        mlp_({bf16, kHidden, 48, kExperts / kRanks, kTiles}, weights_of_experts_.weights(), engine_.stream()) {
    const std::vector<float> values = weights_of_experts_.random_rows(generator_, kTokens);
    const auto bytes = download(weights_of_experts_.upload_values(values), x_.bytes(), engine_.stream());
    upload(x_.data, bytes, engine_.stream());
  }

  void draw_routing() {
    std::vector<std::int32_t> experts;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const auto first = static_cast<std::int32_t>(generator_() % kExperts);
      experts.push_back(first);
      experts.push_back(static_cast<std::int32_t>((first + 1 + generator_() % (kExperts - 1)) % kExperts));
    }
    upload(experts_.data, std::as_bytes(std::span(experts)), engine_.stream());
  }

  void put_on_stream() {
    plan_ = engine_.plan({.experts = experts_.as<const std::int32_t>(), .topk = kTopk, .memory = engine_.memory()},
                         ExpertMap::contiguous(kExperts, kRanks),
                         {.alignment = device::kTileRows, .max_rows = kMaxRows, .rows = rows_});
    (void)engine_.dispatch(plan_, x_);
    mlp_.run(plan_.device().expert_offsets.data(), rows_.data, expert_out_.data);
    (void)engine_.combine(plan_, expert_out_, {.out = result_});
  }

  [[nodiscard]] std::vector<std::byte> result() const {
    auto bytes = download(result_.data, result_.bytes(), engine_.stream());
    engine_.check();
    return bytes;
  }

  void poison_buffers() const {
    for (const Tensor& tensor : {rows_, expert_out_, result_}) poison(tensor.data, tensor.bytes(), engine_.stream());
  }

  [[nodiscard]] Stream stream() const { return engine_.stream(); }
  [[nodiscard]] const Plan& plan() const { return plan_; }

 private:
  std::mt19937 generator_;
  SmallExperts weights_of_experts_;
  Engine engine_;
  Tensor experts_, x_, rows_, expert_out_, result_;
  device::ExpertMlp mlp_;
  Plan plan_;
};

TEST(LayerGraph, GivesTheSameBitsAsItsPartsWithEveryRouting) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(kRanks, [](World& world) {
    Layer layer(world);
    world.barrier();
    layer.draw_routing();
    layer.put_on_stream();
    std::vector<std::byte> last = layer.result();
    Plan plan_of_graph;  // must outlive the graph
    const device::CapturedGraph graph(layer.stream(), [&] {
      layer.put_on_stream();
      plan_of_graph = layer.plan();
    });
    for (int routing = 0; routing < 4; ++routing) {
      layer.draw_routing();
      layer.poison_buffers();
      world.barrier();
      graph.replay();
      const std::vector<std::byte> replayed = layer.result();
      layer.poison_buffers();
      world.barrier();
      layer.put_on_stream();
      require(layer.result() == replayed, "a graph gives what its parts give");
      require(replayed != last, "another routing, another result");
      last = replayed;
    }
    world.barrier();
  }));
}

}  // namespace
}  // namespace shunt::test
