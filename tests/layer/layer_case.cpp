#include "layer/layer_case.hpp"

#include <cmath>
#include <cstring>

#include "support/dice.hpp"

namespace shunt::test {
namespace {

HostRows random_matrix(Dice& dice, DType dtype, std::int64_t rows, std::int64_t cols, float scale) {
  HostRows matrix(dtype, rows, cols);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      matrix.set(row, col, scale * static_cast<float>(dice.between(-1000, 1000)) / 1000.0f);
  return matrix;
}

std::vector<float> floats_of(const HostRows& matrix) {
  return widened({matrix.tensor().data, matrix.tensor().bytes()}, matrix.dtype());
}

}  // namespace

LayerCase random_layer_case(std::uint64_t seed, const Topology& topology, DType dtype) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  const CaseLimits limits{.experts = dice.pick({3, 16, 40}), .topk = 8, .tokens = dice.pick({2, 24, 90})};
  LayerCase layer{.seed = seed,
                  .routing = random_case(generator, topology, limits),
                  .dtype = dtype,
                  .hidden = dice.between(1, 70),
                  .ffn = dice.between(1, 50)};
  for (RankRouting& rank : layer.routing.ranks)
    for (float& weight : rank.weights)
      weight = std::abs(weight);  // avoids sums that cancel, which have no relative error
  for (std::int32_t expert = 0; expert < layer.routing.map.num_experts(); ++expert) {
    const auto scale = [](std::int64_t inputs) { return std::sqrt(3.0f / static_cast<float>(inputs)); };
    layer.gate_up.push_back(random_matrix(dice, dtype, 2 * layer.ffn, layer.hidden, scale(layer.hidden)));
    layer.down.push_back(random_matrix(dice, dtype, layer.hidden, layer.ffn, scale(layer.ffn)));
    layer.experts.push_back(
        {layer.hidden, layer.ffn, dtype, floats_of(layer.gate_up.back()), floats_of(layer.down.back())});
  }
  for (const Routing& routing : layer.routing.routings())
    layer.x.push_back(random_matrix(dice, dtype, static_cast<std::int64_t>(routing.num_tokens()), layer.hidden, 2.0f));
  return layer;
}

ExpertWeights LayerCase::weights_of(RankId rank) const {
  ExpertWeights weights{.dtype = dtype, .hidden = hidden, .ffn = ffn};
  const ExpertMap& map = routing.map;
  for (std::int32_t local = 0; local < map.num_local(rank); ++local) {
    const std::size_t expert = map.logical(PhysicalId(map.first_physical(rank).value + local)).index();
    weights.experts.push_back({gate_up[expert].tensor().data, down[expert].tensor().data});
  }
  return weights;
}

std::vector<float> LayerCase::expected(RankId rank, std::int64_t token) const {
  const Routing routes = routing.routing(rank);
  const auto topk = static_cast<std::size_t>(routes.topk);
  const auto first = static_cast<std::size_t>(token) * topk;
  std::vector<float> weights;
  for (std::size_t entry = first; entry < first + topk; ++entry) weights.push_back(routes.weight(entry));
  return reference_token(x[rank.index()].floats(token), routes.experts.narrow().subspan(first, topk), weights,
                         [&](std::int32_t expert) { return experts[static_cast<std::size_t>(expert)]; });
}

double LayerCase::error_of(RankId rank, std::int64_t token, const ConstTensor& result) const {
  const std::vector<float> wanted = expected(rank, token);
  const std::vector<float> actual = widened({result.row(token), result.row_bytes()}, dtype);
  double distance = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    distance += std::pow(static_cast<double>(actual[i]) - static_cast<double>(wanted[i]), 2);
    norm += std::pow(static_cast<double>(wanted[i]), 2);
  }
  // A short row may be near zero by chance although its terms are not, and the rounding errors of a single element do
  // not average out.
  return std::sqrt(distance) / (std::sqrt(norm) + std::sqrt(static_cast<double>(hidden)) + 4);
}

}  // namespace shunt::test
