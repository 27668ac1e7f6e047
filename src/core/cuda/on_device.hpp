// Makes a device current for a scope, because streams and launches belong to the current device.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::device {

class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "look up the current device");
    if (before_ != device) check(cudaSetDevice(device), "choose the device");
    changed_ = before_ != device;
  }
  ~OnDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace shunt::device
