// How rows of many experts are divided into equal pieces of work; plain arithmetic, so that it is tested without a
// device.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shunt::device {

/// Rows of a tile, all of one expert: the smallest number at which cuBLASLt's batches are as fast as its other products
/// on an H200; half as many cost 40 % (docs/performance.md).
inline constexpr std::int32_t kTileRows = 128;

constexpr std::int64_t tiles_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

/// Upper bound on the tiles of this many rows, for any distribution over experts: each expert's last tile may hold a
/// single row.
constexpr std::int64_t most_tiles(std::int64_t rows, std::int64_t num_experts) {
  return std::min(rows, (rows + num_experts * (kTileRows - 1)) / kTileRows);
}

/// Unique rows are computed in runs, one after another, in the same memory. A run ends with the unique row that brings
/// the number of expert rows since the first run to a multiple of `rows` or beyond, so no run has more than
/// most_rows().
struct ChunkShape {
  std::int32_t num_chunks;
  std::int32_t topk;
  std::int64_t rows;

  static constexpr ChunkShape of(std::int64_t max_expert_rows, std::int32_t num_chunks, std::int32_t topk) {
    // At least topk, so that no row ends two runs.
    return {num_chunks, topk, std::max<std::int64_t>((max_expert_rows + num_chunks - 1) / num_chunks, topk)};
  }
  /// Also an upper bound on unique rows, as each has an expert.
  [[nodiscard]] constexpr std::int64_t most_rows() const { return rows + topk - 1; }
};

}  // namespace shunt::device
