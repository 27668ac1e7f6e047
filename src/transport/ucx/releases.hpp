// What other threads give back to the one that owns the worker.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/far/wake.hpp"

namespace shunt::ucx {

/// Arrival buffers of UCX that are free again. Outlives the carrier as long as a slice does.
class Releases {
 public:
  explicit Releases(std::shared_ptr<far::Wake> wake) : wake_(std::move(wake)) {}

  void add(void* data) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(data);
    }
    wake_->ring();
  }
  std::vector<void*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(free_, {});
  }

 private:
  std::shared_ptr<far::Wake> wake_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

}  // namespace shunt::ucx
