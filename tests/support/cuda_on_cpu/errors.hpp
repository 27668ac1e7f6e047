// What calls of the emulated runtime return.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_on_cpu {

/// Keeps the error for cudaGetLastError() of this thread, and returns it.
cudaError_t fail(cudaError_t error);

/// First in what needs a device: whether there is one. A process forked by one that has used CUDA has none.
cudaError_t check_process();

}  // namespace cuda_on_cpu
