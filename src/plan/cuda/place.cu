#include <cub/block/block_scan.cuh>

#include "core/cuda/check.hpp"
#include "plan/cuda/place.hpp"
#include "plan/cuda/tile.cuh"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;

/// A tile's entries in shared memory, with what is known of their tokens' other entries.
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

  /// Reads the entries and finds the place of each column's first row in the tile's list of segments.
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
    const std::int32_t begin = place_.shape.unique ? place_.map.num_physical : 0;
    const std::int32_t end = place_.shape.unique ? place_.map.num_columns() : place_.map.num_physical;
    scan(begin, end);
  }

  __device__ void write() {
    find_slots();
    if (place_.shape.unique) {
      find_leaders();
      write_unique_rows();
    } else {
      write_terms();
    }
    // What the tile's list could hold and does not.
    const std::int32_t most = tile_.num_tokens() * place_.shape.rows_per_token();
    for (std::int32_t i = num_rows_ + static_cast<std::int32_t>(threadIdx.x); i < most; i += kThreads)
      segments()[i] = kNothing;
  }

  /// Padding of this rank's own map; a block of its own does it.
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

  /// Calls use(entry, look(entry)) for all entries of this thread; what is looked up for several is on its way
  /// together.
  template <class Look, class Use>
  __device__ void for_entries(const Look& look, const Use& use) const {
    constexpr int kAtOnce = 4;
    const std::int32_t num_entries = tile_.num_entries();
    for (std::int32_t begin = threadIdx.x; begin < num_entries; begin += kAtOnce * kThreads) {
      decltype(look(0)) seen[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (begin + i * kThreads < num_entries) seen[i] = look(begin + i * kThreads);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (begin + i * kThreads < num_entries) use(begin + i * kThreads, seen[i]);
    }
  }

  /// The first of a token's entries on a rank stands for the row there.
  __device__ void find_leaders() {
    const std::int32_t num_words = kTileTokens * place_.routing.topk / 32;
    for (std::int32_t i = threadIdx.x; i < num_words; i += kThreads) leaders_[i] = 0;
    __syncthreads();
    for (std::int32_t entry = threadIdx.x; entry < tile_.num_entries(); entry += kThreads) {
      if (slot_[entry] < 0) continue;
      const std::int32_t rank = rank_of(entry);
      const Standing among = standing(entry, [&](std::int32_t other) { return rank_of(other) == rank; });
      if (among.before == 0) atomicOr(&leaders_[entry / 32], 1u << (entry % 32));
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

  /// Slots in expert-major order and, unless rows are unique, the segments that lead there.
  __device__ void find_slots() {
    struct Column {
      std::int32_t before, kept, first_slot;
      float weight;
    };
    const auto look = [&](std::int32_t entry) -> Column {
      if (is_dropped(entry)) return {};
      const std::int32_t expert = expert_[entry];
      return {before_tile(expert), place_.plan.kept[expert], place_.plan.first_slot[expert], weight_of(entry)};
    };
    for_entries(look, [&](std::int32_t entry, const Column& column) {
      slot_[entry] = -1;
      if (is_dropped(entry)) return;
      const std::int32_t expert = expert_[entry];
      const std::int32_t in_tile = tile_.rank_in_column(expert, entry);
      const std::int32_t nth = column.before + in_tile;
      const std::int32_t slot = column.first_slot + nth;
      const bool has_room = nth < column.kept && (place_.shape.unique || slot < place_.rules.max_rows);
      if (has_room) slot_[entry] = slot;
      if (place_.shape.unique) return;
      Segment& segment = segments()[first_[expert] + in_tile];
      segment = has_room ? Segment{token_of(entry), rank_of(entry), slot, column.weight} : kNothing;
    });
    __syncthreads();
  }

  __device__ std::int32_t token_of(std::int32_t entry) const {
    return static_cast<std::int32_t>(tile_.first_token()) + entry / place_.routing.topk;
  }
  __device__ bool is_dropped(std::int32_t entry) const { return order_[entry] == kDropped; }
  // Of entries that name an expert.
  __device__ std::int32_t rank_of(std::int32_t entry) const {
    return static_cast<std::int32_t>(order_[entry] & 0xffffu);
  }
  __device__ std::int32_t key_of(std::int32_t entry) const { return static_cast<std::int32_t>(order_[entry] >> 16); }
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

  /// What ends with a term whose successor in the token's sum has this rank; −1: it has none.
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

  /// An entry among those of its token that were not dropped, in the order of sums.
  struct Standing {
    std::int32_t before = 0;
    std::int32_t all = 0;
    std::int32_t next_rank = -1;
  };
  template <class Counts>
  __device__ Standing standing(std::int32_t entry, const Counts& counts) const {
    const std::int32_t topk = place_.routing.topk;
    const std::int32_t first = entry - entry % topk;
    const std::int32_t key = slot_[entry] >= 0 ? key_of(entry) : 0;
    std::int32_t next_key = 0x7fff'ffff;
    Standing result;
    for (std::int32_t other = first; other < first + topk; ++other) {
      if (slot_[other] < 0 || !counts(other)) continue;
      const std::int32_t other_key = key_of(other);
      ++result.all;
      result.before += other_key < key;
      if (other_key <= key || other_key >= next_key) continue;
      next_key = other_key;
      result.next_rank = rank_of(other);
    }
    return result;
  }

  __device__ void write_terms() const {
    const auto look = [&](std::int32_t entry) { return weight_of(entry); };
    for_entries(look, [&](std::int32_t entry, float weight) {
      const std::int32_t choice = entry % place_.routing.topk;
      const Standing among = standing(entry, [](std::int32_t) { return true; });
      if (choice >= among.all) terms_of(entry)[choice].rank = -1;
      if (slot_[entry] < 0) return;
      const std::int32_t rank = rank_of(entry);
      terms_of(entry)[among.before] = {rank, slot_[entry], weight, static_cast<std::int16_t>(choice),
                                       closes(rank, among.next_rank)};
    });
  }

  /// What an entry's rank tells of the rows that it gets.
  struct Destination {
    std::int32_t* maps;
    std::int32_t first_row;  // of this tile's, in unique order
    std::int32_t first_expert;
    float weight;
  };
  __device__ void write_unique_rows() const {
    const auto look = [&](std::int32_t entry) -> Destination {
      if (is_dropped(entry)) return {};
      const std::int32_t rank = rank_of(entry);
      return {maps_of(rank), place_.plan.first_unique[rank] + before_tile(place_.map.num_physical + rank),
              place_.map.first_of_rank[rank], weight_of(entry)};
    };
    for_entries(look, [&](std::int32_t entry, const Destination& to) { write_unique(entry, to); });
  }

  __device__ void write_unique(std::int32_t entry, const Destination& to) const {
    const std::int32_t topk = place_.routing.topk;
    const std::int32_t choice = entry % topk;
    const Standing among_rows = standing(entry, [&](std::int32_t other) { return is_leader(other); });
    if (choice >= among_rows.all) terms_of(entry)[choice].rank = -1;
    if (is_dropped(entry)) return;

    const std::int32_t rank = rank_of(entry);
    const std::int32_t column = place_.map.num_physical + rank;
    const std::int32_t nth = tile_.rank_in_column(column, entry);
    const std::int32_t unique = to.first_row + nth;
    const Standing among_experts = standing(entry, [&](std::int32_t other) { return rank_of(other) == rank; });
    const UniqueMaps maps = UniqueMaps::of(place_.shape);
    const auto fill = [&](std::int32_t cell, std::int32_t slot, std::int32_t expert, float weight) {
      const std::int64_t i = std::int64_t{unique} * topk + cell;
      to.maps[maps.expert_rows_of_unique + i] = slot;
      to.maps[maps.unique_experts + i] = expert;
      to.maps[maps.unique_weights + i] = __float_as_int(weight);
    };
    to.maps[maps.unique_of_expert_row + slot_[entry]] = unique;
    fill(among_experts.before, slot_[entry], expert_[entry] - to.first_expert, to.weight);
    if (among_experts.before > 0) return;

    for (std::int32_t cell = among_experts.all; cell < topk; ++cell) fill(cell, -1, -1, 0.0f);
    segments()[first_[column] + nth] = {token_of(entry), rank, unique, 1.0f};
    terms_of(entry)[among_rows.before] = {rank, unique, 1.0f, -1, closes(rank, among_rows.next_rank)};
  }

  const Place& place_;
  Tile tile_;
  std::int32_t* first_;     // [columns]: of a column's first row in the tile's list
  std::uint32_t* order_;    // [entries]: the key of the expert, then its rank, in half a word each; kDropped: none
  std::int32_t* slot_;      // [entries]: in expert-major order; −1: dropped
  std::uint32_t* leaders_;  // a bit per entry
  std::uint16_t* expert_;   // [entries]: physical
  std::int32_t num_rows_ = 0;
};

__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ Place place) {
  extern __shared__ std::uint32_t shared[];
  if (*place.stop != 0) return;
  Placement placement(place, shared);
  if (blockIdx.x == place.shape.num_tiles()) return placement.write_padding();
  placement.read();
  placement.write();
}

}  // namespace

void launch(const Place& place, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(place.shape.num_tiles() + (place.shape.unique ? 1 : 0));
  if (blocks == 0) return;
  const auto bytes = static_cast<unsigned>(tile_bytes(place.map.num_columns(), place.routing.topk));
  place_kernel<<<blocks, kThreads, bytes, stream>>>(place);
  check(cudaGetLastError(), "start to place rows");
}

void preload_place() {
  check(cudaFuncSetAttribute(place_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(most_tile_bytes())),
        "load the placing");
}

}  // namespace shunt::device
