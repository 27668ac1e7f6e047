// Shared memory of the kernels that work on a tile of tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

inline constexpr std::int32_t kTileWords = kTileTokens / 32;

/// What placing needs, which is more than counting: bits and a first index per column, two and a half words and a bit
/// per entry.
constexpr std::size_t tile_bytes(std::int32_t num_columns, std::int32_t topk) {
  const std::size_t entries = static_cast<std::size_t>(kTileTokens) * static_cast<std::size_t>(topk);
  return (static_cast<std::size_t>(num_columns) * (kTileWords + 1) + 2 * entries + entries / 2 + entries / 32) * 4;
}

/// Of a block on the current device, less what kernels use besides.
std::size_t most_tile_bytes();

}  // namespace shunt::device
