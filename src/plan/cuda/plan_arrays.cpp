#include "plan/cuda/plan_arrays.hpp"

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::device {

template <class T>
T* PlanBlock::take(std::int64_t count) {
  constexpr std::size_t kAlignment = 16;
  T* const place = reinterpret_cast<T*>(begin_ + bytes_);
  bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

PlanBlock::PlanBlock(const PlanShape& shape, std::byte* begin) : begin_(begin) {
  arrays_.unique_maps = take<std::int32_t>(UniqueMaps::of(shape).num_words);
  arrays_.tile_counts = take<std::uint32_t>(std::int64_t{shape.num_tiles()} * shape.num_columns());
  arrays_.first_slot = take<std::int32_t>(shape.num_physical);
  arrays_.kept = take<std::int32_t>(shape.num_physical);
  arrays_.first_unique = take<std::int32_t>(shape.num_ranks);
  arrays_.segments = take<Segment>(shape.num_segments());
  arrays_.terms = take<Term>(shape.num_tokens * shape.topk);
  arrays_.bad_entry = take<std::int32_t>(shape.num_tiles());
  arrays_.published = take<std::byte*>(2 * std::int64_t{shape.num_ranks});
  arrays_.sizes = take<PlanSizes>(1);
  arrays_.expert_offsets = take<std::int32_t>(shape.num_local + 1);
  arrays_.expert_counts = take<std::int32_t>(shape.num_local);
}

std::size_t most_tile_bytes() {
  constexpr std::size_t kUsedBesides = 4 << 10;  // for the block-wide scans
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "look up the current device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "look at a device");
  return static_cast<std::size_t>(bytes) - kUsedBesides;
}

}  // namespace shunt::device
