// What a lane's CUDA calls need of the thread that makes them, which is the engine's or any of the callers'.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"
#include "core/cuda/on_device.hpp"

namespace shunt::device {

/// Makes the device current; drops an error that the thread's own calls have left behind, which a launch would be
/// blamed for; and lets calls pass that would break a capture under way on another thread.
class LaneScope {
 public:
  explicit LaneScope(int device) : on_device_(device) {
    (void)cudaGetLastError();
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "stand aside from captures");
  }
  ~LaneScope() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  LaneScope(const LaneScope&) = delete;
  LaneScope& operator=(const LaneScope&) = delete;

 private:
  OnDevice on_device_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then what the thread had before
};

}  // namespace shunt::device
