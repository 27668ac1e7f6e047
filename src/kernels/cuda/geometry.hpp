// How rows are divided among threads and for bulk copies; plain arithmetic, so that it is tested without a device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// Loads that a thread has in flight before it stores. With four, 224 threads copy a row of 7168 bf16 elements, which
/// was the fastest of 128 to 896 (docs/performance.md).
inline constexpr std::int32_t kAccessesPerThread = 4;

/// Upper bound on the threads of a block that handles a row.
inline constexpr std::int32_t kMostRowThreads = 1024;

struct RowGeometry {
  std::int32_t access_bytes;  ///< width of an access: the widest power of two up to 16 that every row permits
  std::int32_t num_accesses;  ///< per row
  std::int32_t threads;       ///< of the block that handles a row
};

/// addresses: bitwise or of all rows' base addresses; row_bytes: distance between rows.
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

/// Bulk copies need sizes and addresses that are multiples of this.
inline constexpr std::size_t kBulkAlignment = 16;

/// Kernels for few multiprocessors hold one of a token's rows per lane of a warp.
inline constexpr std::int32_t kMostRowsOfWarp = 32;

struct BulkGeometry {
  std::int32_t piece_bytes;  ///< size of a piece of a row; the last one may be shorter
  std::int32_t num_pieces;   ///< per row
  std::int32_t num_slots;    ///< pieces in a ring, up to a limit
};

/// Pieces are nearly equal and as large as `most_piece_bytes` permits. There are at least two slots if the ring holds
/// two pieces of that size.
constexpr BulkGeometry bulk_geometry(std::size_t row_bytes, std::size_t most_piece_bytes, std::size_t ring_bytes,
                                     std::size_t most_slots) {
  const std::size_t pieces = row_bytes <= most_piece_bytes ? 1 : (row_bytes + most_piece_bytes - 1) / most_piece_bytes;
  const std::size_t share = (row_bytes + pieces - 1) / pieces;
  const std::size_t piece = (share + kBulkAlignment - 1) / kBulkAlignment * kBulkAlignment;
  const std::size_t slots = ring_bytes / piece < most_slots ? ring_bytes / piece : most_slots;
  return {static_cast<std::int32_t>(piece), static_cast<std::int32_t>((row_bytes + piece - 1) / piece),
          static_cast<std::int32_t>(slots)};
}

}  // namespace shunt::device
