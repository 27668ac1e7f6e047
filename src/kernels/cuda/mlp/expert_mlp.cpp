#include "kernels/cuda/mlp/expert_mlp.hpp"

#include <algorithm>
#include <numeric>

#include "core/cuda/memory.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/mlp/expert_mlp_kernels.hpp"
#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::device {
namespace {

constexpr std::int64_t kMostTiles = 1 << 20;

std::size_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(dtype);
}

std::size_t inner_bytes(const ExpertMlpShape& shape) {
  return bytes_of(shape.num_tiles * kTileRows, 2 * shape.ffn, shape.dtype);
}

std::size_t alignment_of(std::size_t expert_bytes) { return std::gcd(expert_bytes, std::size_t{256}); }

constexpr std::size_t kArrays = sizeof(TileArrays) / sizeof(void*);

const ExpertMlpShape& checked(const ExpertMlpShape& shape) {
  shape.check();
  return shape;
}

}  // namespace

void ExpertMlpShape::check() const {
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) fail(ErrorCode::invalid_argument, "expert MLP: {}", what);
  };
  demand(dtype != fp8_e4m3, "rows are f32, bf16 or f16");
  demand(hidden >= 8 && hidden % 8 == 0, fmt::format("hidden is {}, expected a multiple of 8", hidden));
  demand(ffn >= 8 && ffn % 8 == 0, fmt::format("ffn is {}, expected a multiple of 8", ffn));
  demand(num_experts >= 1, fmt::format("{} experts, expected at least 1", num_experts));
  demand(num_tiles >= 1 && num_tiles <= kMostTiles, fmt::format("{} tiles, expected 1 to {}", num_tiles, kMostTiles));
}

std::size_t ExpertMlpShape::gate_up_bytes() const { return bytes_of(2 * ffn, hidden, dtype); }
std::size_t ExpertMlpShape::down_bytes() const { return bytes_of(hidden, ffn, dtype); }
std::size_t ExpertMlpShape::workspace_bytes() const {
  return inner_bytes(*this) + static_cast<std::size_t>(num_tiles) * sizeof(void*) * kArrays;
}

ExpertMlp::ExpertMlp(const ExpertMlpShape& shape, const ExpertWeights& weights, cudaStream_t stream)
    : shape_(checked(shape)),
      weights_(weights),
      stream_(stream),
      workspace_(allocate(shape.workspace_bytes())),
      inner_(workspace_.get()),
      gate_up_({.dtype = shape.dtype,
                .rows = kTileRows,
                .inputs = shape.hidden,
                .outputs = 2 * shape.ffn,
                .x_stride = shape.hidden,
                .batch = static_cast<std::int32_t>(shape.num_tiles),
                .alignment = alignment_of(shape.gate_up_bytes())}),
      down_({.dtype = shape.dtype,
             .rows = kTileRows,
             .inputs = shape.ffn,
             .outputs = shape.hidden,
             .x_stride = 2 * shape.ffn,
             .batch = static_cast<std::int32_t>(shape.num_tiles),
             .alignment = alignment_of(shape.down_bytes())}) {
  std::byte* next = inner_ + inner_bytes(shape);
  const auto take = [&]<class Pointer>(Pointer*& array) {
    array = reinterpret_cast<Pointer*>(next);
    next += static_cast<std::size_t>(shape.num_tiles) * sizeof(Pointer);
  };
  take(tiles_.gate_up);
  take(tiles_.x);
  take(tiles_.inner);
  take(tiles_.down);
  take(tiles_.y);

  preload_tile_pointers();
  preload_swiglu();
  const auto rows = allocate(bytes_of(shape.num_tiles * kTileRows, shape.hidden, shape.dtype));
  const auto offsets = allocate<std::int32_t>(static_cast<std::size_t>(shape.num_experts) + 1);
  check(cudaMemsetAsync(offsets.get(), 0, sizeof(std::int32_t) * (static_cast<std::size_t>(shape.num_experts) + 1),
                        stream),
        "clear offsets");
  run(offsets.get(), rows.get(), rows.get());
  check(cudaStreamSynchronize(stream), "load what experts need");
}

void ExpertMlp::run(const std::int32_t* expert_offsets, const std::byte* x, std::byte* y) const {
  launch(TilePointers{.expert_offsets = expert_offsets,
                      .num_experts = shape_.num_experts,
                      .num_tiles = static_cast<std::int32_t>(shape_.num_tiles),
                      .gate_up = weights_.gate_up,
                      .gate_up_bytes = shape_.gate_up_bytes(),
                      .down = weights_.down,
                      .down_bytes = shape_.down_bytes(),
                      .x = x,
                      .inner = inner_,
                      .y = y,
                      .row_bytes = bytes_of(1, shape_.hidden, shape_.dtype),
                      .inner_row_bytes = bytes_of(1, 2 * shape_.ffn, shape_.dtype),
                      .out = tiles_},
         stream_);
  gate_up_.run(tiles_.gate_up, tiles_.x, tiles_.inner, stream_);
  launch(SwiGlu{.rows = inner_, .num_rows = shape_.num_tiles * kTileRows, .ffn = shape_.ffn, .dtype = shape_.dtype},
         stream_);
  down_.run(tiles_.down, tiles_.inner, tiles_.y, stream_);
}

}  // namespace shunt::device
