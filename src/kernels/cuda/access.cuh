// Loads and stores of up to 16 bytes, with cache hints.
#pragma once

#include <cstdint>

namespace shunt::device {

/// Loads with a hint to keep the line in the L2 cache: the row is read again for the token's other experts.
__device__ inline uint4 load_evict_last(const uint4* from) {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  uint4 v;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from), "l"(policy));
  return v;
}

/// Stores with a hint to evict the line first, which leaves the cache to data that is read again.
__device__ inline void store_evict_first(uint4* to, uint4 v) {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w), "l"(policy)
               : "memory");
}

template <class Word>
__device__ inline Word load_evict_last(const Word* from) {
  return *from;
}
template <class Word>
__device__ inline void store_evict_first(Word* to, Word v) {
  __stcs(to, v);
}

/// Loads data that is not read again.
template <class Wide>
__device__ inline Wide load_once(const Wide* from) {
  if constexpr (sizeof(Wide) == 16) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(from));
    return *reinterpret_cast<const Wide*>(&bits);
  } else {
    return *from;
  }
}

/// Stores data that is not read again soon.
template <class Wide>
__device__ inline void store_once(Wide* to, const Wide& v) {
  if constexpr (sizeof(Wide) == 16)
    __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(&v));
  else
    *to = v;
}

/// Starts an asynchronous copy of 16 bytes, which are not read again, to an address in shared memory.
__device__ inline void fetch_once(std::uint32_t to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// Ends a group of this thread's fetches.
__device__ inline void commit_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until all but the last kGroups groups of this thread have arrived.
template <int kGroups>
__device__ inline void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace shunt::device
