// The kernels of ExpertMlp besides its products: operand addresses of each tile, computed on the device so that the
// host needs no sizes, and the activation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "shunt/dtype.hpp"

namespace shunt::device {

/// Device arrays of [tiles] pointers: the operands of a batch of products.
struct TileArrays {
  const std::byte** gate_up;
  const std::byte** x;
  std::byte** inner;
  const std::byte** down;
  std::byte** y;
};

/// Tile t holds the rows from t × kTileRows on. Tiles beyond the last expert use its weights; their results are not
/// used.
struct TilePointers {
  const std::int32_t* expert_offsets;  ///< [experts + 1], device: first row of each expert; multiples of kTileRows
  std::int32_t num_experts;
  std::int32_t num_tiles;
  const std::byte* gate_up;
  std::size_t gate_up_bytes;  ///< per expert
  const std::byte* down;
  std::size_t down_bytes;  ///< per expert
  const std::byte* x;
  std::byte* inner;
  std::byte* y;
  std::size_t row_bytes;        ///< of x and y
  std::size_t inner_row_bytes;  ///< of inner
  TileArrays out;
};

void launch(const TilePointers& tiles, cudaStream_t stream);
void preload_tile_pointers();

/// rows[r][i] = round(silu(rows[r][i]) × rows[r][ffn + i]) for i < ffn, in fp32, in place. silu(g) = g / (1 + exp(−g)).
struct SwiGlu {
  std::byte* rows;  ///< [num_rows, 2 ffn]: gate, then up; aligned to 16 bytes
  std::int64_t num_rows;
  std::int64_t ffn;  ///< a multiple of 8
  DType dtype;
};

void launch(const SwiGlu& swiglu, cudaStream_t stream);
void preload_swiglu();

}  // namespace shunt::device
