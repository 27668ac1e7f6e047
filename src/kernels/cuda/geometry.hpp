// How rows are spread over threads; plain arithmetic, so that it is tested without a device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// Accesses a thread has in flight before it stores. With four, 224 threads carry a row of 7168 bf16 elements, which
/// was the fastest of 128 to 896 (docs/performance.md).
inline constexpr std::int32_t kAccessesPerThread = 4;

/// Of a block that carries a row.
inline constexpr std::int32_t kMostRowThreads = 1024;

struct RowGeometry {
  std::int32_t access_bytes;  ///< of one access: the widest power of two up to 16 that every row allows
  std::int32_t num_accesses;  ///< per row
  std::int32_t threads;       ///< of the block that carries a row
};

/// `addresses` is the bitwise or of all rows' base addresses; row_bytes the distance of rows.
constexpr RowGeometry row_geometry(std::size_t row_bytes, std::uintptr_t addresses) {
  std::size_t access = 16;
  while ((row_bytes | addresses) % access != 0) access /= 2;
  const std::size_t accesses = row_bytes / access;
  const std::size_t threads = (accesses + kAccessesPerThread - 1) / kAccessesPerThread;
  const std::size_t whole_warps = (threads + 31) / 32 * 32;
  return {static_cast<std::int32_t>(access), static_cast<std::int32_t>(accesses),
          static_cast<std::int32_t>(whole_warps < 32                ? 32
                                    : whole_warps > kMostRowThreads ? kMostRowThreads
                                                                    : whole_warps)};
}

}  // namespace shunt::device
