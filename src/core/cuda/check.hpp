// Turns a failed CUDA call into an Error. Without fmt, whose checked formats nvcc can't read.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "shunt/error.hpp"

namespace shunt::device {

/// `what` says what was attempted.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // errors that don't end the context are reported once
  const char* const hint = status == cudaErrorInitializationError
                               ? " (a process that was forked by one that had used CUDA can't use it)"
                               : "";
  throw Error(ErrorCode::system, std::string("CUDA: can't ") + what + ": " + cudaGetErrorString(status) + hint);
}

}  // namespace shunt::device
