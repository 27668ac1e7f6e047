#include "kernels/cuda/mlp/unique_mlp.hpp"

#include "core/cuda/memory.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/mlp/unique_rows.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {
namespace {

std::size_t map_words(const UniqueMlpShape& shape) {
  const auto chunks = static_cast<std::size_t>(shape.num_chunks);
  const auto experts = static_cast<std::size_t>(shape.num_experts);
  return (chunks + 1) + chunks * experts + chunks * (experts + 1) + 1;
}

std::shared_ptr<std::int32_t> make_maps(const UniqueMlpShape& shape, cudaStream_t stream) {
  auto maps = allocate<std::int32_t>(map_words(shape));
  check(cudaMemsetAsync(maps.get(), 0, map_words(shape) * sizeof(std::int32_t), stream), "clear maps");
  check(cudaStreamSynchronize(stream), "clear maps");
  return maps;
}

UniqueChunks chunks_of(const UniqueMlpShape& shape, const UniqueView& unique, std::int32_t* maps) {
  const std::int64_t chunks = shape.num_chunks;
  const std::int64_t experts = shape.num_experts;
  std::int32_t* const begins = maps + 1;
  std::int32_t* const first_rows = begins + chunks + 1;
  return {unique, shape.chunks(), begins, first_rows, first_rows + chunks * experts, maps};
}

std::int64_t read_most_tiles(const std::int32_t* maps, cudaStream_t stream) {
  std::int32_t tiles = 0;
  check(cudaStreamSynchronize(stream), "wait for the number of tiles");
  check(cudaMemcpyAsync(&tiles, maps, sizeof(tiles), cudaMemcpyDeviceToHost, stream), "read the number of tiles");
  check(cudaStreamSynchronize(stream), "read the number of tiles");
  return tiles;
}

std::size_t row_bytes(const UniqueMlpShape& shape) {
  return static_cast<std::size_t>(shape.hidden) * size_of(shape.dtype);
}

const UniqueMlpShape& checked(const UniqueMlpShape& shape) {
  const auto demand = [](bool holds, const char* what) {
    if (!holds) fail(ErrorCode::invalid_argument, "expert MLP of unique rows: {}", what);
  };
  demand(shape.num_chunks >= 1, "expected at least one chunk");
  demand(shape.max_expert_rows >= 1, "expected room for at least one row");
  demand(shape.topk >= 1 && shape.topk <= Routing::kMaxTopK, "topk is out of range");
  return shape;
}

}  // namespace

ExpertMlpShape UniqueMlpShape::mlp() const {
  const std::int64_t most = most_tiles(chunks().most_rows(), num_experts);
  return {dtype, hidden, ffn, num_experts, tiles_per_chunk > 0 ? tiles_per_chunk : most};
}

std::size_t UniqueMlpShape::workspace_bytes() const {
  return mlp().workspace_bytes() + static_cast<std::size_t>(buffer_rows()) * row_bytes(*this) +
         map_words(*this) * sizeof(std::int32_t);
}

UniqueMlp::UniqueMlp(const UniqueMlpShape& shape, const ExpertWeights& weights, cudaStream_t stream)
    : shape_(checked(shape)),
      stream_(stream),
      mlp_(shape.mlp(), weights, stream),
      buffer_(allocate(static_cast<std::size_t>(shape.buffer_rows()) * row_bytes(shape))),
      maps_(make_maps(shape, stream)) {
  preload_unique_chunks();
  preload_spread_rows();
  preload_sum_places();
}

void UniqueMlp::run(const UniqueView& unique, const std::byte* x, std::byte* y) const {
  const UniqueChunks chunks = chunks_of(shape_, unique, maps_.get());
  launch(chunks, stream_);
  for (std::int32_t chunk = 0; chunk < shape_.num_chunks; ++chunk) {
    const ChunkView view = chunks.view(chunk);
    const std::int64_t max_rows = chunks.shape.most_rows();
    launch(SpreadRows{unique, view, max_rows, x, buffer_.get(), shape_.buffer_rows(), row_bytes(shape_)}, stream_);
    mlp_.run(view.expert_offsets, buffer_.get(), buffer_.get());
    launch(SumPlaces{unique, view, max_rows, buffer_.get(), shape_.buffer_rows(), y, shape_.hidden, shape_.dtype},
           stream_);
  }
}

std::int64_t UniqueMlp::tiles_needed() const { return read_most_tiles(maps_.get(), stream_); }

std::int64_t count_tiles(const UniqueMlpShape& shape, const UniqueView& unique, cudaStream_t stream) {
  const auto maps = make_maps(checked(shape), stream);
  launch(chunks_of(shape, unique, maps.get()), stream);
  return read_most_tiles(maps.get(), stream);
}

}  // namespace shunt::device
