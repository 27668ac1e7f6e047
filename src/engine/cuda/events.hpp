// A pool of CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/cuda/check.hpp"

namespace shunt::device {

class Events : public std::enable_shared_from_this<Events> {
 public:
  using Event = std::shared_ptr<CUevent_st>;

  ~Events() {
    for (cudaEvent_t event : free_) (void)cudaEventDestroy(event);
  }

  /// An event recorded on the stream.
  [[nodiscard]] Event record(cudaStream_t stream, const char* what = "record an event") {
    const Event event = take();
    check(cudaEventRecord(event.get(), stream), what);
    return event;
  }

 private:
  Event take() {
    const std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    } else {
      event = free_.back();
      free_.pop_back();
    }
    return {event, [pool = shared_from_this()](cudaEvent_t freed) {
              const std::lock_guard guard(pool->mutex_);
              pool->free_.push_back(freed);
            }};
  }

  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

}  // namespace shunt::device
