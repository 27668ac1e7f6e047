// A training step over three layers and two micro-batches: forward, backward, copies of experts, dropped tokens. In
// host memory or, with --device, on the GPUs of this machine; nothing else differs.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <shunt/shunt.hpp>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::int32_t kRanks = 4, kLayers = 3, kBatches = 2, kTokens = 6, kHidden = 16, kTopk = 2, kExperts = 8;

/// Experts stand for a network: each multiplies its rows by a number.
float factor(std::int32_t layer, std::int64_t expert) { return 0.5f + 0.1f * static_cast<float>(layer + expert); }

/// What a router would decide for one layer and micro-batch of one rank. Every sixth choice is dropped.
struct Routed {
  Routed(shunt::RankId rank, std::int32_t layer, std::int32_t batch) {
    for (std::int32_t i = 0; i < kTokens * kTopk; ++i) {
      const std::int32_t expert = (rank.value + layer + batch + i / kTopk + i % kTopk * 3) % kExperts;
      experts.push_back(i % 6 == 5 ? -1 : expert);
      weights.push_back(0.25f + 0.125f * static_cast<float>(i % kTopk));
    }
  }
  [[nodiscard]] shunt::Routing routing() const { return {.experts = experts, .weights = weights, .topk = kTopk}; }
  /// What the layer multiplies a token by.
  [[nodiscard]] float of_token(std::int32_t layer, std::int32_t token) const {
    float sum = 0;
    for (std::int32_t i = token * kTopk; i < (token + 1) * kTopk; ++i)
      if (experts[i] >= 0) sum += weights[i] * factor(layer, experts[i]);
    return sum;
  }
  std::vector<std::int64_t> experts;  // 64 bits, as PyTorch has them
  std::vector<float> weights;
};

std::vector<float> read(const shunt::Engine& engine, const shunt::ConstTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  engine.copy(tensor, shunt::borrow(values.data(), shunt::f32, tensor.rows, tensor.cols));
  return values;
}

/// Forward and, as experts are linear, backward too. A real layer runs a grouped product over the same ranges.
void run_experts(const shunt::Engine& engine, const shunt::Plan& plan, const shunt::ExpertMap& map, shunt::RankId rank,
                 std::int32_t layer, const shunt::ConstTensor& rows, const shunt::Tensor& out) {
  std::vector<float> values = read(engine, rows);
  const std::vector<std::int32_t> offsets = plan.read().expert_offsets;
  for (std::int32_t local = 0; local < plan.num_local_experts(); ++local) {
    const shunt::ExpertId expert = map.logical(shunt::PhysicalId(map.first_physical(rank).value + local));
    for (std::int32_t i = offsets[local] * kHidden; i < offsets[local + 1] * kHidden; ++i)
      values[i] *= factor(layer, expert.value);
  }
  engine.copy(shunt::borrow(values.data(), shunt::f32, rows.rows, rows.cols), out);
}

void expect_near(const char* what, float value, float expected) {
  if (std::fabs(value - expected) > 1e-5f * std::fabs(expected) + 1e-6f)
    throw std::runtime_error(std::string(what) + " differs from the dense computation");
}

void train(shunt::World& world, bool on_device) {
  // Experts 1 and 6 have two copies.
  const auto map = shunt::ExpertMap::from_placement(kExperts, {{0, 1, 6}, {2, 3}, {4, 5}, {6, 7, 1}});
  shunt::EngineOptions options{.hidden = kHidden, .dtype = shunt::f32};
  if (on_device) options.device = {.heap_bytes = std::size_t{64} << 20};
  std::vector<shunt::Engine> engines;  // light: one per layer
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    options.name = "layer " + std::to_string(layer);
    engines.emplace_back(world, options);
  }

  struct Step {  // what backward needs of forward
    shunt::Plan plan;
    shunt::Tensor expert_out, result;
  };
  Step steps[kLayers][kBatches];
  std::vector<shunt::Tensor> x(kBatches);
  const std::vector<float> ones(kTokens * kHidden, 1.0f);
  for (shunt::Tensor& each : x) {
    each = engines[0].allocate(shunt::f32, kTokens, kHidden);
    engines[0].copy(shunt::borrow(ones.data(), shunt::f32, kTokens, kHidden), each);
  }
  const std::vector<shunt::Tensor> gradient_of_loss = x;  // the loss is the sum of all outputs

  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    shunt::Engine& engine = engines[layer];
    std::vector<shunt::Ticket<shunt::Rows>> dispatched;  // all on their way before the first is waited for
    for (std::int32_t batch = 0; batch < kBatches; ++batch) {
      const Routed routed(world.rank(), layer, batch);
      steps[layer][batch].plan = engine.plan(routed.routing(), map);
      dispatched.push_back(engine.dispatch(steps[layer][batch].plan, x[batch]));
    }
    std::vector<shunt::Ticket<shunt::Tensor>> combined;
    for (std::int32_t batch = 0; batch < kBatches; ++batch) {
      Step& step = steps[layer][batch];
      const shunt::Rows rows = dispatched[batch].wait();
      step.expert_out = engine.expert_out(step.plan);
      run_experts(engine, step.plan, map, world.rank(), layer, rows.data, step.expert_out);
      combined.push_back(engine.combine(step.plan, step.expert_out));
    }
    for (std::int32_t batch = 0; batch < kBatches; ++batch)
      steps[layer][batch].result = x[batch] = combined[batch].wait();
  }

  std::vector<shunt::Tensor> gradients = gradient_of_loss;
  for (std::int32_t layer = kLayers - 1; layer >= 0; --layer) {
    shunt::Engine& engine = engines[layer];
    for (std::int32_t batch = 0; batch < kBatches; ++batch) {
      const Step& step = steps[layer][batch];
      const auto [rows, weights] = engine.combine_backward(step.plan, gradients[batch], step.expert_out).wait();
      const shunt::Tensor grad_rows = engine.expert_out(step.plan);
      run_experts(engine, step.plan, map, world.rank(), layer, rows, grad_rows);
      gradients[batch] = engine.dispatch_backward(step.plan, grad_rows).wait();

      // The same, densely: a layer multiplies token t by a number.
      const std::vector<float> grad_x = read(engine, gradients[batch]), grad_weights = read(engine, weights);
      for (std::int32_t token = 0; token < kTokens; ++token) {
        float before = 1, after = 1;
        for (std::int32_t other = 0; other < kLayers; ++other)
          if (other != layer)
            (other < layer ? before : after) *= Routed(world.rank(), other, batch).of_token(other, token);
        const Routed routed(world.rank(), layer, batch);
        expect_near("a gradient of x", grad_x[token * kHidden], after * routed.of_token(layer, token));
        for (std::int32_t i = token * kTopk; i < (token + 1) * kTopk; ++i)
          expect_near("a gradient of a weight", grad_weights[i],
                      routed.experts[i] < 0 ? 0 : kHidden * after * before * factor(layer, routed.experts[i]));
      }
    }
  }
  world.barrier();  // no rank leaves while another one still reads its memory
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool on_device = argc > 1 && std::strcmp(argv[1], "--device") == 0;
    shunt::World::spawn(kRanks, [&](shunt::World& world) {
      train(world, on_device);
      if (world.rank().value == 0) std::puts("all gradients equal those of the dense computation");
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
