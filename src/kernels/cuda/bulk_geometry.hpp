// How rows are cut for bulk copies; plain arithmetic, so that it is tested without a device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// Bulk copies move multiples of this, between addresses that are.
inline constexpr std::size_t kBulkAlignment = 16;

/// Kernels that keep to few multiprocessors hold one of a token's rows per lane of a warp.
inline constexpr std::int32_t kMostRowsOfWarp = 32;

struct BulkGeometry {
  std::int32_t piece_bytes;  ///< of all pieces of a row but the last, which may be shorter
  std::int32_t num_pieces;   ///< per row
  std::int32_t num_slots;    ///< pieces that fit into the memory of a ring, up to a limit
};

/// Pieces are as large as `most_piece_bytes` allows, and nearly equal. At least two slots, if the ring holds two pieces
/// of that size.
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
