// Moves rows through shared memory by bulk copies: a thread starts a copy, and none executes it. So a multiprocessor
// can have as many bytes in flight as its shared memory holds. Compute capability 9.0 or later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda/ptx>

namespace shunt::device {

#if __CUDA_ARCH__ >= 900

/// An L2 policy that evicts these bytes first, which leaves the cache to data that is read again, such as the matrices
/// of a concurrent GEMM.
__device__ inline std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Pieces of rows in the shared memory of one warp. Sizes and addresses are multiples of 16 bytes.
class PieceRing {
 public:
  /// Called by all lanes.
  __device__ PieceRing(std::byte* slots, std::uint64_t* arrivals, std::int32_t slot_bytes, std::int32_t num_slots)
      : slots_(slots), arrivals_(arrivals), slot_bytes_(slot_bytes), num_slots_(num_slots) {
    if (threadIdx.x % 32 == 0) {
      for (std::int32_t slot = 0; slot < num_slots; ++slot) ::cuda::ptx::mbarrier_init(arrivals + slot, 1);
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
    __syncwarp();
  }

  /// A slot, and the parity of the round through all slots.
  struct Place {
    std::int32_t slot = 0;
    std::uint32_t parity = 0;
  };
  __device__ void advance(Place& place) const {
    if (++place.slot < num_slots_) return;
    place.slot = 0;
    place.parity ^= 1;
  }

  [[nodiscard]] __device__ std::int32_t num_slots() const { return num_slots_; }
  [[nodiscard]] __device__ std::byte* at(std::int32_t slot) const { return slots_ + slot * slot_bytes_; }

  /// Starts a copy into the slot. Called by one lane, after all lanes have finished with the slot's previous contents.
  __device__ void fetch(std::int32_t slot, const std::byte* from, std::uint32_t bytes) const {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(at(slot)));
    const auto arrival = static_cast<std::uint32_t>(__cvta_generic_to_shared(arrivals_ + slot));
    ::cuda::ptx::mbarrier_arrive_expect_tx(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta, ::cuda::ptx::space_shared,
                                           arrivals_ + slot, bytes);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(arrival), "l"(policy_)
        : "memory");
  }

  /// Waits until the data fetched into the slot has arrived. Called by all lanes.
  __device__ void wait(Place place) const {
    while (!::cuda::ptx::mbarrier_try_wait_parity(arrivals_ + place.slot, place.parity)) {
    }
  }

  /// Starts a copy out of the slot. Called by any lane, which then commits, and waits before the slot is reused.
  __device__ void send(std::int32_t slot, std::byte* to, std::uint32_t bytes) const {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(at(slot)));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to), "r"(from),
                 "r"(bytes), "l"(policy_)
                 : "memory");
  }

 private:
  std::byte* slots_;
  std::uint64_t* arrivals_;
  std::int32_t slot_bytes_;
  std::int32_t num_slots_;
  std::uint64_t policy_ = evict_first_policy();
};

#endif

}  // namespace shunt::device
