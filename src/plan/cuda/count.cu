#include "plan/cuda/count.hpp"

#include "core/cuda/check.hpp"
#include "plan/cuda/tile.cuh"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;
constexpr std::int32_t kNone = 0x7fff'ffff;

__global__ void __launch_bounds__(kThreads) count_kernel(RoutingView routing, MapTables map, PlanArrays plan) {
  extern __shared__ std::uint32_t bits[];
  __shared__ std::int32_t bad_entry;
  Tile tile(routing, map, bits);
  tile.clear();
  if (threadIdx.x == 0) bad_entry = kNone;
  __syncthreads();
  tile.for_entries([&](const Tile::Entry& entry) {
    if (entry.expert < 0 ? entry.named != -1 : !tile.mark(entry)) atomicMin(&bad_entry, entry.index);
  });
  __syncthreads();
  for (std::int32_t column = threadIdx.x; column < map.num_columns(); column += blockDim.x)
    plan.tile_counts[std::int64_t{blockIdx.x} * map.num_columns() + column] = tile.count(column);
  if (threadIdx.x == 0) plan.bad_entry[blockIdx.x] = bad_entry == kNone ? -1 : bad_entry;
}

}  // namespace

void launch_count(const RoutingView& routing, const MapTables& map, const PlanArrays& plan, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>((routing.num_tokens + kTileTokens - 1) / kTileTokens);
  if (tiles == 0) return;
  count_kernel<<<tiles, kThreads, static_cast<unsigned>(map.num_columns()) * kTileWords * 4, stream>>>(routing, map,
                                                                                                       plan);
  check(cudaGetLastError(), "start to count");
}

void preload_count() {
  check(cudaFuncSetAttribute(count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(most_tile_bytes())),
        "load the counting");
}

namespace {

__global__ void __launch_bounds__(kThreads) clamp_kernel(const __grid_constant__ Clamp clamp) {
  extern __shared__ std::uint32_t bits[];
  if (*clamp.stop != 0) return;
  Tile tile(clamp.routing, clamp.map, bits);
  tile.clear();
  __syncthreads();
  tile.for_entries([&](const Tile::Entry& entry) {
    if (entry.expert >= 0) tile.mark(entry);
  });
  __syncthreads();
  const std::uint32_t* before_tile = clamp.plan.tile_counts + std::int64_t{blockIdx.x} * clamp.map.num_columns();
  std::int32_t* experts = clamp.experts + tile.first_token() * clamp.routing.topk;
  std::int32_t* copies = clamp.copies ? clamp.copies + tile.first_token() * clamp.routing.topk : nullptr;
  tile.for_entries([&](const Tile::Entry& entry) {
    const std::int32_t expert = entry.expert;
    const bool is_kept =
        expert >= 0 && static_cast<std::int32_t>(before_tile[expert]) + tile.rank_in_column(expert, entry.index) <
                           clamp.plan.kept[expert];
    experts[entry.index] = is_kept ? entry.named : -1;
    if (copies && !is_kept) copies[entry.index] = -1;
  });
}

}  // namespace

void launch(const Clamp& clamp, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>((clamp.routing.num_tokens + kTileTokens - 1) / kTileTokens);
  if (tiles == 0) return;
  clamp_kernel<<<tiles, kThreads, static_cast<unsigned>(clamp.map.num_columns()) * kTileWords * 4, stream>>>(clamp);
  check(cudaGetLastError(), "start to clamp a routing");
}

void preload_clamp() {
  check(cudaFuncSetAttribute(clamp_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(most_tile_bytes())),
        "load the clamping");
}

}  // namespace shunt::device
