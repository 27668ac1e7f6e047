// Streams of this process that operations run on. They share its connections to a device, in which whoever waits for
// other ranks holds up what comes later on another stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace shunt::device {

/// Counts the stream as long as it lives.
class StreamInUse {
 public:
  StreamInUse(std::int32_t device, cudaStream_t stream);
  ~StreamInUse();
  StreamInUse(const StreamInUse&) = delete;
  StreamInUse& operator=(const StreamInUse&) = delete;

  /// Different ones.
  [[nodiscard]] static std::int32_t num_streams(std::int32_t device);

 private:
  std::int32_t device_;
  cudaStream_t stream_;
};

}  // namespace shunt::device
