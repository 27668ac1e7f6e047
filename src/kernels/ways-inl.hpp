// The two ways to store a vector. Stores past the cache must fill whole lines: a partial line costs a read of the rest.

#if defined(SHUNT_KERNELS_WAYS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_KERNELS_WAYS_INL_HPP
#undef SHUNT_KERNELS_WAYS_INL_HPP
#else
#define SHUNT_KERNELS_WAYS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/thread_sanitizer.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kLineBytes = 64;

// Bytes from the address to the next start of a cache line; 0 at one.
HWY_INLINE std::size_t bytes_to_line(const std::byte* address) {
  return -reinterpret_cast<std::uintptr_t>(address) % kLineBytes;
}

struct ThroughCache {
  // As bytes: `to` need not be aligned, not even to its elements.
  template <class D>
  static HWY_INLINE void store(D, hn::Vec<D> vector, std::byte* to) {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, vector), bytes, reinterpret_cast<std::uint8_t*>(to));
  }
};

struct PastCache {
  // `to` must be aligned to the vector.
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> vector, std::byte* to) {
    auto* const aligned = reinterpret_cast<hn::TFromD<D>*>(to);
    // ThreadSanitizer doesn't see streaming stores, so it would miss races on the rows they write.
    if constexpr (kThreadSanitizer) {
      hn::Store(vector, d, aligned);
    } else {
      hn::Stream(vector, d, aligned);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#endif
