// What other threads give back to the one that owns the worker.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "core/fail.hpp"
#include "transport/descriptor.hpp"

namespace shunt::ucx {

/// Arrival buffers of UCX that are free again, and the bell that wakes the link's thread. Outlives the link as long as
/// a slice does.
class Releases {
 public:
  Releases() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.valid()) fail_errno("can't make an event descriptor");
  }

  [[nodiscard]] int wake_fd() const { return wake_.get(); }
  void wake() {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }
  void forget_wakes() {
    std::uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof(count));
  }

  void add(void* data) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(data);
    }
    wake();
  }
  std::vector<void*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(free_, {});
  }

 private:
  Descriptor wake_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

}  // namespace shunt::ucx
