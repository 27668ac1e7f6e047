// The experts' network: y = (silu(x · gateᵀ) × (x · upᵀ)) · downᵀ, each expert with its own weights.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/mlp/expert_mlp_kernels.hpp"
#include "kernels/cuda/mlp/matmul.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// Device memory, in the dtype of the rows, aligned to 256 bytes.
struct ExpertWeights {
  const std::byte* gate_up;  ///< [experts, 2 ffn, hidden]: gate, then up
  const std::byte* down;     ///< [experts, hidden, ffn]
};

struct ExpertMlpShape {
  DType dtype;          ///< f32, bf16 or f16
  std::int64_t hidden;  ///< a multiple of 8
  std::int64_t ffn;     ///< a multiple of 8
  std::int32_t num_experts;
  std::int64_t num_tiles;  ///< of kTileRows rows; all are computed, whether or not they hold rows of an expert

  /// Throws Error(invalid_argument).
  void check() const;

  [[nodiscard]] std::size_t gate_up_bytes() const;  ///< per expert
  [[nodiscard]] std::size_t down_bytes() const;     ///< per expert
  [[nodiscard]] std::size_t workspace_bytes() const;
};

/// The number of rows per expert stays on the device; time and memory depend on num_tiles only. So a run can be
/// captured and replayed with other routings. Sums are in fp32, rounded to the dtype after each product and after the
/// activation, and the same at every repeat. One run at a time, because all runs share one workspace.
class ExpertMlp {
 public:
  /// Allocates, and computes once, so that CUDA loads everything before ranks wait for each other.
  ExpertMlp(const ExpertMlpShape& shape, const ExpertWeights& weights, cudaStream_t stream);

  /// expert_offsets: [experts + 1], device: first row of each expert, multiples of kTileRows, as in a plan with that
  /// alignment. x, y: [num_tiles × kTileRows, hidden]; y may be x. Rows without an expert become unspecified.
  void run(const std::int32_t* expert_offsets, const std::byte* x, std::byte* y) const;

 private:
  ExpertMlpShape shape_;
  ExpertWeights weights_;
  cudaStream_t stream_;
  std::shared_ptr<std::byte> workspace_;
  std::byte* inner_ = nullptr;  // [num_tiles × kTileRows, 2 ffn]
  TileArrays tiles_{};
  Matmul gate_up_;
  Matmul down_;
};

}  // namespace shunt::device
