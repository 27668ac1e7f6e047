#include "kernels/copy.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy.cpp"
#include <hwy/foreach_target.h>

#include "kernels/ways-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

void stream_copy(const std::byte* source, std::size_t bytes, std::byte* target) {
  const hn::CappedTag<std::uint8_t, kLineBytes> d;
  const std::size_t head = std::min(bytes_to_line(target), bytes);
  std::memcpy(target, source, head);
  std::size_t done = head;
  for (; done + kLineBytes <= bytes; done += kLineBytes) {
    for (std::size_t i = done; i < done + kLineBytes; i += hn::Lanes(d))
      PastCache::store(d, hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(source + i)), target + i);
  }
  std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(stream_copy);

// One target after another: the row stays in the cache after the first read, and a single stream of full lines keeps
// the write-combining buffers from being evicted half filled.
void copy_row(const std::byte* source, std::size_t bytes, std::span<std::byte* const> targets, Store store) {
  for (std::byte* const target : targets) {
    if (store == Store::streaming) {
      HWY_DYNAMIC_DISPATCH(stream_copy)(source, bytes, target);
    } else {
      std::memcpy(target, source, bytes);
    }
  }
}

}  // namespace shunt
#endif
