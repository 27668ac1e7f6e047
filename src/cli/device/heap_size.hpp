// How much of a device's memory a benchmark lends to the ranks' shuffles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// What any rank holds at most: its rows twice (scales included where they are fp8, and then narrower than experts'
/// outputs), its result, a plan or two.
inline std::size_t heap_bytes(const ShuffleConfig& config, std::int64_t rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(config.hidden) * size_of(config.expert_dtype());
  const auto entries = static_cast<std::size_t>(config.tokens) * static_cast<std::size_t>(config.topk);
  const auto maps = entries * static_cast<std::size_t>(config.ranks) * 16;
  return 2 * static_cast<std::size_t>(rows) * row_bytes + static_cast<std::size_t>(config.tokens) * row_bytes +
         3 * (entries * 48 + maps) + (std::size_t{64} << 20);
}

}  // namespace shunt::cli
