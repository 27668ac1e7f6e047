// What the router decided: per token its top-k experts and weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shunt/language.hpp"

namespace shunt {

/// A view; the arrays are read while the plan is made and not kept.
struct Routing {
  /// [tokens, topk] logical experts; −1 = dropped. A token names an expert at most once.
  std::span<const std::int32_t> experts;
  /// [tokens, topk], or empty for all ones. The weight of a dropped entry is ignored.
  std::span<const float> weights;
  /// 1 to kMaxTopK.
  std::int32_t topk = 1;

  static constexpr std::int32_t kMaxTopK = 64;

  [[nodiscard]] std::size_t num_tokens() const {
    return topk > 0 ? experts.size() / static_cast<std::size_t>(topk) : 0;
  }
  [[nodiscard]] float weight(std::size_t entry) const { return weights.empty() ? 1.0f : weights[entry]; }
};

}  // namespace shunt
