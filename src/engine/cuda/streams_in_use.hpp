// The streams of this process that run operations. They share the process's connections to a device, where a kernel
// that waits for other ranks holds up later work of other streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace shunt::device {

/// Counts a stream as in use while it lives.
class StreamInUse {
 public:
  StreamInUse(std::int32_t device, cudaStream_t stream) : device_(device), stream_(stream) {
    const std::lock_guard lock(mutex_);
    ++num_users_[device_][stream_];
  }
  ~StreamInUse() {
    const std::lock_guard lock(mutex_);
    if (--num_users_[device_][stream_] == 0) num_users_[device_].erase(stream_);
  }
  StreamInUse(const StreamInUse&) = delete;
  StreamInUse& operator=(const StreamInUse&) = delete;

  /// Different streams of the device.
  [[nodiscard]] static std::int32_t num_streams(std::int32_t device) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int32_t>(num_users_[device].size());
  }

 private:
  inline static std::mutex mutex_;
  inline static std::map<std::int32_t, std::map<cudaStream_t, std::int32_t>> num_users_;  // by device

  std::int32_t device_;
  cudaStream_t stream_;
};

}  // namespace shunt::device
