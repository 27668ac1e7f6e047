// Where the operands of each tile lie, found on the device: sizes need not be known to the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// [tiles] each, device: what a batch of products reads and writes.
struct TileArrays {
  const std::byte** gate_up;
  const std::byte** x;
  std::byte** inner;
  const std::byte** down;
  std::byte** y;
};

/// Tile t holds the rows from t × kTileRows on. Tiles beyond the last expert's get the last expert's weights: what they
/// compute is nobody's.
struct TilePointers {
  const std::int32_t* expert_offsets;  ///< [experts + 1], device: first row of each expert; multiples of kTileRows
  std::int32_t num_experts;
  std::int32_t num_tiles;
  const std::byte* gate_up;
  std::size_t gate_up_bytes;  ///< of an expert
  const std::byte* down;
  std::size_t down_bytes;  ///< of an expert
  const std::byte* x;
  std::byte* inner;
  std::byte* y;
  std::size_t row_bytes;        ///< of x and y
  std::size_t inner_row_bytes;  ///< of inner
  TileArrays out;
};

void launch(const TilePointers& tiles, cudaStream_t stream);
void preload_tile_pointers();

}  // namespace shunt::device
