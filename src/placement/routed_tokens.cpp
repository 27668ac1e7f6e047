#include "placement/routed_tokens.hpp"

#include <algorithm>

namespace shunt::placement {

void RoutedTokens::deal_sources(std::int32_t num_ranks, std::int64_t first) {
  for (std::size_t token = 0; token < sources.size(); ++token)
    sources[token] = static_cast<std::int32_t>((first + static_cast<std::int64_t>(token)) / kRunTokens % num_ranks);
}

RoutedTokens RoutedTokens::range(std::size_t begin, std::size_t end) const {
  const auto k = static_cast<std::size_t>(topk);
  const auto at = [](const auto& values, std::size_t i) { return values.begin() + static_cast<std::ptrdiff_t>(i); };
  return {num_experts, topk, {at(experts, begin * k), at(experts, end * k)}, {at(sources, begin), at(sources, end)}};
}

RoutedTokens RoutedTokens::sample(std::size_t count) const {
  if (count >= num_tokens()) return *this;
  RoutedTokens some{num_experts, topk, {}, {}};
  some.experts.reserve(count * static_cast<std::size_t>(topk));
  some.sources.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t token = i * num_tokens() / count;
    const auto from = experts_of(token);
    some.experts.insert(some.experts.end(), from.begin(), from.end());
    some.sources.push_back(sources[token]);
  }
  return some;
}

std::vector<std::int64_t> RoutedTokens::rows_per_expert() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(num_experts));
  for (const std::uint16_t expert : experts)
    if (expert != kDropped) ++rows[expert];
  return rows;
}

std::vector<std::int64_t> RoutedTokens::co_activation() const {
  const auto n = static_cast<std::size_t>(num_experts);
  std::vector<std::int64_t> counts(n * n);
  for (std::size_t token = 0; token < num_tokens(); ++token)
    for (const std::uint16_t a : experts_of(token)) {
      if (a == kDropped) continue;
      for (const std::uint16_t b : experts_of(token))
        if (b != kDropped) ++counts[a * n + b];
    }
  return counts;
}

}  // namespace shunt::placement
