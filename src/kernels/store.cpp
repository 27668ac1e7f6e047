#include "kernels/store.hpp"

#include <hwy/cache_control.h>

#include "kernels/thread_sanitizer.hpp"
#include "shunt/error.hpp"
#include "shunt/machine.hpp"

namespace shunt {

namespace {

std::size_t last_level_cache_bytes() noexcept {
  constexpr std::size_t kWhereUnknown = std::size_t{32} << 20;
  try {
    const std::size_t bytes = Machine::detect().last_level_cache_bytes;
    return bytes > 0 ? bytes : kWhereUnknown;
  } catch (const Error&) {
    return kWhereUnknown;
  }
}

}  // namespace

Store choose_store(std::size_t bytes) {
  // bench_kernels, copy_then_read, 32 MiB of cache (Zen 4): 8 MiB are 1.1 times faster through the cache, 10 MiB 1.1
  // times and 16 MiB 1.6 times faster past it.
  static const std::size_t threshold = last_level_cache_bytes() / 4;
  return !kThreadSanitizer && bytes > threshold ? Store::streaming : Store::cached;
}

void flush_streaming() { hwy::FlushStream(); }

}  // namespace shunt
