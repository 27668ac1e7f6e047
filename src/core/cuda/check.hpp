// Throws an Error for a failed CUDA call. Does not use fmt, whose checked formats nvcc can't compile.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "shunt/error.hpp"

namespace shunt::device {

/// what: the attempted action, for the message.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears errors that don't end the context, so that they are reported once
  int driver = 0;
  const bool has_no_driver =
      status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
  const char* const why = has_no_driver ? "there is no NVIDIA driver on this machine" : cudaGetErrorString(status);
  const char* const hint = status == cudaErrorInitializationError
                               ? " (a process that was forked by one that had used CUDA can't use it)"
                               : "";
  const bool has_no_device = status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice;
  throw Error(has_no_device ? ErrorCode::unsupported : ErrorCode::system,
              std::string("CUDA: can't ") + what + ": " + why + hint);
}

}  // namespace shunt::device
