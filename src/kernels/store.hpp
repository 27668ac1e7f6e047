// How rows are written: through the cache, or past it.
#pragma once

#include <cstddef>

namespace shunt {

enum class Store {
  cached,  ///< through the cache
  /// Does not read the target's lines and does not displace the cache. Visible to other threads only after
  /// flush_streaming().
  streaming,
};

/// The faster way to write `bytes` in one operation on this machine. bench/micro/kernels chose the threshold.
Store choose_store(std::size_t bytes);

/// Orders this thread's streaming stores before its later stores, so that a release signal covers them too.
void flush_streaming();

}  // namespace shunt
