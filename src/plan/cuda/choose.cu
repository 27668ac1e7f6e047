#include <algorithm>
#include <array>
#include <new>

#include "core/copy_choice.hpp"
#include "core/cuda/check.hpp"
#include "plan/cuda/choose.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 128;  // a warp per scheduler, so that small batches spread over multiprocessors
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffff'ffffu;

/// The copies of one expert. The first few are loaded into registers at once: loads in the loop over a token's experts
/// would be serialised, and the time of a choice is all latency.
class LoadedCopies {
 public:
  __device__ LoadedCopies(const CopyTables::Copy* all, std::int32_t num) : all_(all), num_(num) {
    if (num < 2) return;
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      loaded_[i] = all[i < num ? i : 0];
      if (i >= num) loaded_[i].share = 0;  // a duplicate of the first copy, with no share, so never chosen
    }
  }

  /// As choose_copy(), for two or more copies.
  __device__ CopyTables::Copy choose(std::uint32_t drawn, std::int32_t source, const NeededBits& needed) const {
    if (num_ > kLoaded) return choose_copy(all_, num_, drawn, source, needed);
    // By index, because registers have no addresses.
    const auto index = &choose_copy(loaded_, kLoaded, drawn, source, needed) - loaded_;
    CopyTables::Copy chosen = loaded_[0];
#pragma unroll
    for (int i = 1; i < kLoaded; ++i)
      if (index == i) chosen = loaded_[i];
    return chosen;
  }

 private:
  static constexpr int kLoaded = 4;  // few experts have more copies

  const CopyTables::Copy* all_;
  std::int32_t num_;
  CopyTables::Copy loaded_[kLoaded];
};

/// The value of the lane whose index differs in these bits.
template <class T>
__device__ T from_partner(T value, int bits) {
  struct Words {
    unsigned at[sizeof(T) / sizeof(unsigned)];
  };
  auto words = __builtin_bit_cast(Words, value);
#pragma unroll
  for (unsigned& word : words.at) word = __shfl_xor_sync(kAllLanes, word, bits);
  return __builtin_bit_cast(T, words);
}

/// Comparison of a lane's expert with the other experts of its token.
struct Comparison {
  bool is_repeated = false;    ///< an earlier choice of the token names the same expert
  unsigned smaller_lanes = 0;  ///< bit mask of the warp's lanes that hold a smaller expert of this token
};

template <int kLanes>
__device__ Comparison compare_within_token(std::int32_t expert, int choice, int first_lane) {
  Comparison result;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::int32_t other = __shfl_sync(kAllLanes, expert, i, kLanes);
    result.is_repeated |= other == expert && i < choice;
    result.smaller_lanes |= unsigned{other < expert} << (first_lane + i);
  }
  return result;
}

/// choose_copies() with kLanes lanes per token, one per choice, for at most NeededBits::kMaxRanks ranks. Lanes without
/// a choice or a token stay active to the end, because all lanes of a warp take part in the shuffles.
template <int kLanes>
__global__ void __launch_bounds__(kThreads) choose_kernel(const __grid_constant__ RoutingView routing,
                                                          const __grid_constant__ MapTables map, std::int32_t* copies) {
  const std::int32_t choice = threadIdx.x % kLanes;
  const std::int64_t token = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const std::int64_t place = token * routing.topk + choice;
  const bool is_here = token < routing.num_tokens && choice < routing.topk;
  NeededBits needed(map.node_of[routing.self]);

  const std::int32_t expert = is_here ? routing.experts[place] : -1;
  CopyTables::Expert of_expert{-1, -1, -1, 0};
  std::int32_t begin = 0, end = 0;
  const bool is_known = expert >= 0 && expert < map.copies.num_experts;
  if (is_known) {
    of_expert = map.copies.experts[expert];
    begin = map.copies.copies_begin[expert];
    end = map.copies.copies_begin[expert + 1];
  }

  const int lane = threadIdx.x % kWarp;
  const int first_lane = lane - choice;
  const Comparison compared = compare_within_token<kLanes>(expert, choice, first_lane);  // overlaps the loads above
  const bool is_served = is_known && !compared.is_repeated;
  const LoadedCopies loaded(map.copies.copies + begin, end - begin);
  std::uint32_t hash = is_served ? of_expert.hash : 0;
  std::int32_t chosen = is_served ? of_expert.only_copy : -1;
  if (chosen >= 0) needed.add(of_expert.rank, of_expert.node);
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    hash += from_partner(hash, half);
    needed.add(from_partner(needed, half));
  }

  // Lanes that still need a copy; the same mask on all lanes, so that finished tokens wait for the others.
  unsigned pending = __ballot_sync(kAllLanes, is_served && chosen < 0);
  const unsigned lanes_of_token = kAllLanes >> (kWarp - kLanes) << first_lane;
  while (pending != 0) {
    const bool is_next = (pending >> lane & 1) != 0 && (pending & compared.smaller_lanes) == 0;
    const unsigned next = __ballot_sync(kAllLanes, is_next);
    std::int32_t rank = 0, node = 0;
    if (is_next) {
      const CopyTables::Copy copy = loaded.choose(draw(hash, expert), routing.self, needed);
      chosen = copy.physical;
      rank = copy.rank;
      node = copy.node;
    }
    // A finished token has no next lane. It receives some other lane's value, which it no longer reads.
    const int next_lane = __ffs(next & lanes_of_token) - 1;
    rank = __shfl_sync(kAllLanes, rank, next_lane);
    node = __shfl_sync(kAllLanes, node, next_lane);
    needed.add(rank, node);
    pending &= ~next;
  }
  if (is_here) copies[place] = chosen;
}

constexpr int kThreadsAlone = 32;

/// One thread per token, for any number of ranks and choices. The lists are in shared memory: the first launch of a
/// kernel with local memory can wait for the whole device, where kernels of peers may be waiting for this one.
__global__ void __launch_bounds__(kThreadsAlone)
    choose_alone_kernel(const __grid_constant__ RoutingView routing, const __grid_constant__ MapTables map,
                        std::int32_t* copies) {
  __shared__ std::int32_t all_experts[kThreadsAlone][Routing::kMaxTopK];
  alignas(NeededList) __shared__ std::byte all_needed[kThreadsAlone][sizeof(NeededList)];
  const std::int64_t token = std::int64_t{blockIdx.x} * kThreadsAlone + threadIdx.x;
  if (token >= routing.num_tokens) return;
  std::int32_t* const experts = all_experts[threadIdx.x];
  const std::int32_t* const named = routing.experts + token * routing.topk;
  std::int32_t* const chosen = copies + token * routing.topk;
  for (std::int32_t choice = 0; choice < routing.topk; ++choice) {
    experts[choice] = named[choice];
    chosen[choice] = -1;
  }
  for (std::int32_t choice = 1; choice < routing.topk; ++choice)
    for (std::int32_t other = 0; other < choice; ++other)
      if (experts[other] == experts[choice]) experts[choice] = -1;
  auto& needed = *new (all_needed[threadIdx.x]) NeededList(map.node_of[routing.self]);
  choose_copies(map.copies, routing.self, experts, routing.topk, needed,
                [&](std::int32_t choice, std::int32_t copy) { chosen[choice] = copy; });
}

/// A kernel, its lanes per token, and its threads per block.
struct Variant {
  void (*kernel)(RoutingView, MapTables, std::int32_t*);
  int lanes;
  int threads = kThreads;
};

constexpr Variant kAlone{choose_alone_kernel, 1, kThreadsAlone};
/// Ascending; the first variant with a lane for each choice leaves the fewest lanes idle.
constexpr std::array kVariants{Variant{choose_kernel<1>, 1},   Variant{choose_kernel<2>, 2},
                               Variant{choose_kernel<4>, 4},   Variant{choose_kernel<8>, 8},
                               Variant{choose_kernel<16>, 16}, Variant{choose_kernel<32>, 32}};

Variant variant_for(std::int32_t num_ranks, std::int32_t topk) {
  if (num_ranks > NeededBits::kMaxRanks || topk > kVariants.back().lanes) return kAlone;
  return *std::ranges::find_if(kVariants, [&](const Variant& variant) { return topk <= variant.lanes; });
}

}  // namespace

void launch_choose(const RoutingView& routing, const MapTables& map, std::int32_t* copies, cudaStream_t stream) {
  if (routing.num_tokens == 0) return;
  const Variant chosen = variant_for(map.num_ranks, routing.topk);
  const int tokens_per_block = chosen.threads / chosen.lanes;
  const auto blocks = static_cast<unsigned>((routing.num_tokens + tokens_per_block - 1) / tokens_per_block);
  chosen.kernel<<<blocks, chosen.threads, 0, stream>>>(routing, map, copies);
  check(cudaGetLastError(), "start to choose copies");
}

void preload_choose() {
  const auto load = [](const Variant& variant) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, variant.kernel), "load the choice of copies");
  };
  load(kAlone);
  for (const Variant& variant : kVariants) load(variant);
}

}  // namespace shunt::device
