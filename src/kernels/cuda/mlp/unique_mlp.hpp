// Experts that read `token_unique` rows and sum their results: a row's copies for its experts are stored for only one
// run of rows at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cuda/mlp/expert_mlp.hpp"
#include "kernels/cuda/mlp/tiles.hpp"
#include "kernels/cuda/mlp/unique_chunks.hpp"

namespace shunt::device {

struct UniqueMlpShape {
  DType dtype;
  std::int64_t hidden;
  std::int64_t ffn;
  std::int32_t num_experts;
  std::int32_t topk;
  std::int64_t max_expert_rows;  ///< upper bound on this rank's expert-major rows
  std::int32_t num_chunks;       ///< runs of unique rows, computed one after another in one buffer
  /// Tiles of the buffer; 0: as many as any run can need. Fewer save time, because all are computed.
  std::int64_t tiles_per_chunk = 0;

  [[nodiscard]] ChunkShape chunks() const { return ChunkShape::of(max_expert_rows, num_chunks, topk); }
  [[nodiscard]] ExpertMlpShape mlp() const;
  [[nodiscard]] std::int64_t buffer_rows() const { return mlp().num_tiles * kTileRows; }
  [[nodiscard]] std::size_t workspace_bytes() const;
};

/// A run has all expert rows of its unique rows, so their sum is computed at once, in fp32 and by ascending expert, and
/// does not depend on where runs end. The device determines the runs, so it can be captured, as ExpertMlp can.
class UniqueMlp {
 public:
  UniqueMlp(const UniqueMlpShape& shape, const ExpertWeights& weights, cudaStream_t stream);

  /// x, y: [unique rows, hidden]; y[row] = Σ weight × the expert's result for x[row]. y may be x.
  void run(const UniqueView& unique, const std::byte* x, std::byte* y) const;

  /// The maximum number of tiles that a run has needed; waits for the stream. If more than the buffer holds, some rows
  /// were omitted.
  [[nodiscard]] std::int64_t tiles_needed() const;
  [[nodiscard]] std::int64_t tiles_per_chunk() const { return shape_.mlp().num_tiles; }

 private:
  UniqueMlpShape shape_;
  cudaStream_t stream_;
  ExpertMlp mlp_;
  std::shared_ptr<std::byte> buffer_;
  std::shared_ptr<std::int32_t> maps_;
};

/// The maximum number of tiles that a run of these rows needs, found on the device without computing the runs. Waits
/// for the stream.
std::int64_t count_tiles(const UniqueMlpShape& shape, const UniqueView& unique, cudaStream_t stream);

}  // namespace shunt::device
