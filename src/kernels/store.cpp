#include "kernels/store.hpp"

#include <hwy/cache_control.h>

#include "kernels/thread_sanitizer.hpp"
#include "shunt/machine.hpp"

namespace shunt {

Store choose_store(std::size_t bytes) {
  static const std::size_t threshold = Machine::detect().last_level_cache_bytes / 2;
  return !kThreadSanitizer && bytes >= threshold ? Store::streaming : Store::cached;
}

void flush_streaming() { hwy::FlushStream(); }

}  // namespace shunt
