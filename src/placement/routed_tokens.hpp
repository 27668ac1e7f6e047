// One layer's routing in the form that placement reads: each token's experts and source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt::placement {

/// Tokens without a recorded source are dealt to ranks round-robin, in runs of this many, like passages of text.
inline constexpr std::int64_t kRunTokens = 512;

struct RoutedTokens {
  static constexpr std::uint16_t kDropped = 0xffff;

  std::int32_t num_experts = 0;
  std::int32_t topk = 1;
  std::vector<std::uint16_t> experts;  ///< [tokens, topk], kDropped where dropped
  std::vector<std::int32_t> sources;   ///< [tokens] ranks

  [[nodiscard]] std::size_t num_tokens() const { return sources.size(); }
  [[nodiscard]] std::span<const std::uint16_t> experts_of(std::size_t token) const {
    const auto k = static_cast<std::size_t>(topk);
    return std::span(experts).subspan(token * k, k);
  }

  /// Assigns sources to tokens without recorded ones; `first` is the index of the first token.
  void deal_sources(std::int32_t num_ranks, std::int64_t first = 0);

  [[nodiscard]] RoutedTokens range(std::size_t begin, std::size_t end) const;
  /// `count` tokens spread evenly over all; all of them if there are fewer.
  [[nodiscard]] RoutedTokens sample(std::size_t count) const;

  /// Rows per expert.
  [[nodiscard]] std::vector<std::int64_t> rows_per_expert() const;
  /// [experts, experts]: tokens that need both; the diagonal counts an expert's tokens.
  [[nodiscard]] std::vector<std::int64_t> co_activation() const;
};

}  // namespace shunt::placement
