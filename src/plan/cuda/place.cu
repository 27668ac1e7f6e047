#include <cub/block/block_scan.cuh>

#include "core/cuda/check.hpp"
#include "plan/cuda/place.hpp"
#include "plan/cuda/tile.cuh"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;

/// A tile's entries in shared memory, and the relations between the entries of each token.
template <bool kUnique>
class Placement {
 public:
  __device__ Placement(const Place& place, std::uint32_t* shared)
      : place_(place),
        tile_(place.routing, place.map, shared),
        first_(reinterpret_cast<std::int32_t*>(shared) + place.map.num_columns() * kTileWords),
        order_(reinterpret_cast<std::uint32_t*>(first_) + place.map.num_columns()),
        slot_(reinterpret_cast<std::int32_t*>(order_) + kTileTokens * place.routing.topk),
        leaders_(reinterpret_cast<std::uint32_t*>(slot_) + kTileTokens * place.routing.topk),
        expert_(reinterpret_cast<std::uint16_t*>(leaders_ + kTileTokens * place.routing.topk / 32)) {}

  /// Reads the entries and computes the index of each column's first row in the tile's list of segments.
  __device__ void read() {
    tile_.clear();
    __syncthreads();
    tile_.for_entries([&](const Tile::Entry& entry) {
      order_[entry.index] = kDropped;
      if (entry.expert < 0) return;
      expert_[entry.index] = static_cast<std::uint16_t>(entry.expert);
      order_[entry.index] = static_cast<std::uint32_t>(entry.key) << 16 | static_cast<std::uint32_t>(entry.rank);
      tile_.mark(entry);
    });
    __syncthreads();
    const std::int32_t num_physical = place_.map.num_physical;
    kUnique ? scan(num_physical, place_.map.num_columns()) : scan(0, num_physical);
  }

  __device__ void write() {
    find_slots();
    if constexpr (kUnique) {
      find_leaders();
      write_unique_rows();
      write_unique_entries();
    } else {
      write_terms();
    }
    // Marks the unused rest of the tile's segments.
    const std::int32_t most = tile_.num_tokens() * place_.shape.rows_per_token();
    for (std::int32_t i = num_rows_ + static_cast<std::int32_t>(threadIdx.x); i < most; i += kThreads)
      segments()[i] = kNothing;
  }

  /// Fills the padding of this rank's own maps; executed by an extra block.
  __device__ void write_padding() const {
    std::int32_t* const maps = maps_of(place_.routing.self);
    for (std::int32_t local = 0; local < place_.shape.num_local; ++local)
      for (std::int32_t row = place_.plan.expert_offsets[local] + place_.plan.expert_counts[local] + threadIdx.x;
           row < place_.plan.expert_offsets[local + 1]; row += kThreads)
        maps[UniqueMaps::of(place_.shape).unique_of_expert_row + row] = -1;
  }

 private:
  static constexpr std::uint32_t kDropped = 0xffff'ffffu;
  static constexpr Segment kNothing{-1, -1, -1, 0.0f};

  /// Marks the first of a token's entries on each rank as the leader, which writes the unique row.
  __device__ void find_leaders() {
    const std::int32_t num_words = kTileTokens * place_.routing.topk / 32;
    for (std::int32_t i = threadIdx.x; i < num_words; i += kThreads) leaders_[i] = 0;
    __syncthreads();
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      if (is_dropped(entry)) continue;
      const std::int32_t rank = rank_of(entry);
      const Position position = position_of(entry, [&](std::int32_t other) { return rank_of(other) == rank; });
      if (position.before == 0) atomicOr(&leaders_[entry / 32], 1u << (entry % 32));
    }
    __syncthreads();
  }
  __device__ bool is_leader(std::int32_t entry) const { return leaders_[entry / 32] >> (entry % 32) & 1u; }

  __device__ void scan(std::int32_t begin, std::int32_t end) {
    using Scan = cub::BlockScan<std::int32_t, kThreads>;
    __shared__ typename Scan::TempStorage storage;
    const std::int32_t per_thread = (end - begin + kThreads - 1) / kThreads;
    const std::int32_t first = min(begin + static_cast<std::int32_t>(threadIdx.x) * per_thread, end);
    const std::int32_t last = min(first + per_thread, end);
    std::int32_t rows = 0;
    for (std::int32_t column = first; column < last; ++column) rows += tile_.count(column);
    std::int32_t before = 0;
    Scan(storage).ExclusiveSum(rows, before, num_rows_);
    for (std::int32_t column = first; column < last; ++column) {
      first_[column] = before;
      before += tile_.count(column);
    }
    __syncthreads();
  }

  __device__ std::int32_t before_tile(std::int32_t column) const {
    return static_cast<std::int32_t>(
        place_.plan.tile_counts[std::int64_t{blockIdx.x} * place_.map.num_columns() + column]);
  }

  /// Computes slots in expert-major order and, unless rows are unique, writes the segments with these slots.
  __device__ void find_slots() {
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      if (is_dropped(entry)) continue;
      const std::int32_t expert = expert_[entry];
      const std::int32_t in_tile = tile_.rank_in_column(expert, entry);
      const std::int32_t nth = before_tile(expert) + in_tile;
      const std::int32_t slot = place_.plan.first_slot[expert] + nth;
      const bool has_room = nth < place_.plan.kept[expert];
      slot_[entry] = slot;
      if (!kUnique)
        segments()[first_[expert] + in_tile] =
            has_room ? Segment{token_of(entry), rank_of(entry), slot, weight_of(entry)} : kNothing;
      if (!has_room) order_[entry] = kDropped;
    }
    __syncthreads();
  }

  __device__ std::int32_t token_of(std::int32_t entry) const {
    return static_cast<std::int32_t>(tile_.first_token()) + tile_.token_of(entry);
  }
  __device__ std::int32_t choice_of(std::int32_t entry) const {
    return entry - tile_.token_of(entry) * place_.routing.topk;
  }
  __device__ bool is_dropped(std::int32_t entry) const { return order_[entry] == kDropped; }
  // Requires an entry that is not dropped.
  __device__ std::int32_t rank_of(std::int32_t entry) const {
    return static_cast<std::int32_t>(order_[entry] & 0xffffu);
  }
  __device__ float weight_of(std::int32_t entry) const {
    if (!place_.routing.weights) return 1.0f;
    return place_.routing.weights[tile_.first_token() * place_.routing.topk + entry];
  }
  __device__ Segment* segments() const {
    return place_.plan.segments + tile_.first_token() * place_.shape.rows_per_token();
  }
  __device__ Term* terms_of(std::int32_t entry) const {
    return place_.plan.terms + std::int64_t{token_of(entry)} * place_.routing.topk;
  }
  __device__ std::int32_t* maps_of(std::int32_t rank) const {
    return reinterpret_cast<std::int32_t*>(place_.unique_maps[rank]);
  }

  /// What a term closes, given its rank and the rank of the next term in the token's sum (−1: none).
  __device__ std::int16_t closes(std::int32_t rank, std::int32_t next_rank) const {
    const std::int32_t node = place_.map.node_of[rank];
    const bool is_home = place_.flat || node == place_.map.node_of[place_.routing.self];
    Closes what = Closes::nothing;
    if (next_rank < 0 || (!place_.flat && place_.map.node_of[next_rank] != node))
      what = is_home ? Closes::node : Closes::remote_node;
    else if (!place_.flat && next_rank != rank)
      what = Closes::rank;
    return static_cast<std::int16_t>(what);
  }

  /// Position of an entry position the token's selected entries that were not dropped, in summation order.
  struct Position {
    std::int32_t before = 0;
    std::int32_t all = 0;
    std::int32_t next_rank = -1;
  };
  template <class Counts>
  __device__ Position position_of(std::int32_t entry, const Counts& counts) const {
    const std::uint32_t own = order_[entry];
    const std::int32_t first = entry - choice_of(entry);
    std::uint32_t next = kDropped;
    Position result;
#pragma unroll 4
    for (std::int32_t other = first; other < first + place_.routing.topk; ++other) {
      const std::uint32_t order = order_[other];
      const bool is_counted = order != kDropped && counts(other);
      result.all += is_counted;
      result.before += is_counted && order < own;
      next = is_counted && order > own ? min(next, order) : next;
    }
    if (next != kDropped) result.next_rank = static_cast<std::int32_t>(next & 0xffffu);
    return result;
  }

  __device__ void write_terms() const {
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      const std::int32_t choice = choice_of(entry);
      const Position position = position_of(entry, [](std::int32_t) { return true; });
      if (choice >= position.all) terms_of(entry)[choice].rank = -1;
      if (is_dropped(entry)) continue;
      const std::int32_t rank = rank_of(entry);
      terms_of(entry)[position.before] = {rank, slot_[entry], weight_of(entry), static_cast<std::int16_t>(choice),
                                          closes(rank, position.next_rank)};
    }
  }

  /// Index of the token's row on the entry's rank.
  __device__ std::int32_t unique_of(std::int32_t entry) const {
    const std::int32_t column = place_.map.num_physical + rank_of(entry);
    return place_.plan.first_unique[rank_of(entry)] + before_tile(column) + tile_.rank_in_column(column, entry);
  }

  /// Writes the unique rows of leaders, and empties their maps.
  __device__ void write_unique_rows() const {
    const std::int32_t topk = place_.routing.topk;
    const UniqueMaps maps = UniqueMaps::of(place_.shape);
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      const Position position = position_of(entry, [&](std::int32_t other) { return is_leader(other); });
      if (const std::int32_t choice = choice_of(entry); choice >= position.all) terms_of(entry)[choice].rank = -1;
      if (is_dropped(entry) || !is_leader(entry)) continue;
      const std::int32_t rank = rank_of(entry);
      const std::int32_t unique = unique_of(entry);
      const std::int32_t column = place_.map.num_physical + rank;
      segments()[first_[column] + tile_.rank_in_column(column, entry)] = {token_of(entry), rank, unique, 1.0f};
      terms_of(entry)[position.before] = {rank, unique, 1.0f, -1, closes(rank, position.next_rank)};
      const auto fill = [&](std::int64_t map, std::int32_t value) {
        std::int32_t* const row = maps_of(rank) + map + std::int64_t{unique} * topk;
        if (topk % 4 == 0)
          for (std::int32_t cell = 0; cell < topk; cell += 4)
            *reinterpret_cast<int4*>(row + cell) = make_int4(value, value, value, value);
        else
          for (std::int32_t cell = 0; cell < topk; ++cell) row[cell] = value;
      };
      fill(maps.expert_rows_of_unique, -1);
      fill(maps.unique_experts, -1);
      fill(maps.unique_weights, 0);  // the bits of 0.0f
    }
    __syncthreads();  // a row is emptied before other threads write its entries
  }

  __device__ void write_unique_entries() const {
    const UniqueMaps maps = UniqueMaps::of(place_.shape);
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      if (is_dropped(entry)) continue;
      const std::int32_t rank = rank_of(entry);
      const std::int32_t unique = unique_of(entry);
      const Position position = position_of(entry, [&](std::int32_t other) { return rank_of(other) == rank; });
      const std::int64_t cell = std::int64_t{unique} * place_.routing.topk + position.before;
      std::int32_t* const words = maps_of(rank);
      words[maps.unique_of_expert_row + slot_[entry]] = unique;
      words[maps.expert_rows_of_unique + cell] = slot_[entry];
      words[maps.unique_experts + cell] = expert_[entry] - place_.map.first_of_rank[rank];
      words[maps.unique_weights + cell] = __float_as_int(weight_of(entry));
    }
  }

  const Place& place_;
  Tile tile_;
  std::int32_t* first_;     // [columns]: index of the column's first row in the tile's list
  std::uint32_t* order_;    // [entries]: the expert's key and rank, half a word each; or kDropped
  std::int32_t* slot_;      // [entries]: slot in expert-major order, unless dropped
  std::uint32_t* leaders_;  // a bit per entry
  std::uint16_t* expert_;   // [entries]: physical expert
  std::int32_t num_rows_ = 0;
};

template <bool kUnique>
__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ Place place) {
  extern __shared__ std::uint32_t shared[];
  if (*place.stop != 0) return;
  Placement<kUnique> placement(place, shared);
  if (kUnique && blockIdx.x == place.shape.num_tiles()) return placement.write_padding();
  placement.read();
  placement.write();
}

}  // namespace

void launch(const Place& place, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(place.shape.num_tiles() + (place.shape.unique ? 1 : 0));
  if (blocks == 0) return;
  const auto bytes = static_cast<unsigned>(tile_bytes(place.map.num_columns(), place.routing.topk));
  const auto kernel = place.shape.unique ? place_kernel<true> : place_kernel<false>;
  kernel<<<blocks, kThreads, bytes, stream>>>(place);
  check(cudaGetLastError(), "start to place rows");
}

void preload_place() {
  for (const auto kernel : {place_kernel<true>, place_kernel<false>})
    check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_tile_bytes())),
        "load the placing");
}

}  // namespace shunt::device
