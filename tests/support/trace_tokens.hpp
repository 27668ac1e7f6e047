// What a layer of a routing trace holds, in plain arrays: the reference that files are compared with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shunt/float_formats.hpp"
#include "shunt/routing_trace.hpp"
#include "support/dice.hpp"

namespace shunt::test {

struct TraceTokens {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  std::vector<float> scores;
  std::vector<std::int32_t> sources;

  bool operator==(const TraceTokens&) const = default;

  void append(const TraceTokens& more) {
    experts.insert(experts.end(), more.experts.begin(), more.experts.end());
    weights.insert(weights.end(), more.weights.begin(), more.weights.end());
    scores.insert(scores.end(), more.scores.begin(), more.scores.end());
    sources.insert(sources.end(), more.sources.begin(), more.sources.end());
  }
  [[nodiscard]] Routing routing(std::int32_t topk) const { return {experts, weights, topk}; }

  /// Values that f16 holds exactly; what the shape does not have is left out.
  static TraceTokens random(Dice& dice, const TraceShape& shape, std::int32_t tokens, std::int32_t scored,
                            std::int32_t source, bool has_drops) {
    TraceTokens result;
    for (std::int32_t token = 0; token < tokens; ++token) {
      std::vector<std::int32_t> experts = dice.permutation(shape.experts);
      experts.resize(static_cast<std::size_t>(shape.topk));
      for (std::int32_t& expert : experts) {
        if (has_drops && dice.one_in(4)) expert = -1;
        if (shape.weights) result.weights.push_back(expert < 0 ? 0.0f : random_f16(dice));
      }
      result.experts.insert(result.experts.end(), experts.begin(), experts.end());
      if (shape.sources) result.sources.push_back(source);
    }
    if (shape.scores)
      for (std::int32_t i = 0; i < scored * shape.experts; ++i) result.scores.push_back(random_f16(dice));
    return result;
  }

  /// All of a layer, read in pieces of `step` tokens.
  static TraceTokens of_layer(const TraceLayer& layer, const TraceShape& shape, std::int64_t step) {
    TraceTokens result;
    result.experts.resize(static_cast<std::size_t>(layer.num_tokens() * shape.topk));
    result.scores.resize(static_cast<std::size_t>(layer.num_scored_tokens() * shape.experts));
    if (shape.weights) result.weights.resize(result.experts.size());
    if (shape.sources) result.sources.resize(static_cast<std::size_t>(layer.num_tokens()));
    const auto part = [&](auto& values, std::int64_t first, std::int64_t count, std::int64_t width) {
      return std::span(values).subspan(static_cast<std::size_t>(first * width),
                                       static_cast<std::size_t>(count * width));
    };
    for (std::int64_t first = 0; first < layer.num_tokens(); first += step) {
      const std::int64_t count = std::min(step, layer.num_tokens() - first);
      const std::int64_t scored = std::clamp<std::int64_t>(layer.num_scored_tokens() - first, 0, count);
      layer.read_experts(first, part(result.experts, first, count, shape.topk));
      if (shape.weights) layer.read_weights(first, part(result.weights, first, count, shape.topk));
      if (scored > 0) layer.read_scores(first, part(result.scores, first, scored, shape.experts));
      if (shape.sources) layer.read_sources(first, part(result.sources, first, count, 1));
    }
    return result;
  }

 private:
  static float random_f16(Dice& dice) {
    constexpr std::int32_t kLargestFinite = 0x7bff;
    const auto magnitude = static_cast<std::uint16_t>(dice.between(0, kLargestFinite));
    return f32_from_f16(static_cast<std::uint16_t>(magnitude | (dice.one_in(2) ? 0x8000 : 0)));
  }
};

}  // namespace shunt::test
