// Device memory that its owner frees, and copies for which the host waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "core/cuda/check.hpp"
#include "shunt/tensor.hpp"

namespace shunt::device {

/// Must not be called while ranks wait for each other on the device: allocating may wait for them.
template <class T = std::byte>
std::shared_ptr<T> allocate(std::size_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, count > 0 ? count * sizeof(T) : 1), "allocate device memory");
  return {static_cast<T*>(data), [](T* freed) { (void)cudaFree(freed); }};
}

/// Waits for the stream, then copies and waits again: all ranks of a process share CUDA's copy queues, so no copy may
/// be queued behind work that waits for another rank. what: as in check().
inline void copy_when_idle(void* to, const void* from, std::size_t bytes, cudaStream_t stream, const char* what) {
  check(cudaStreamSynchronize(stream), what);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), what);
  check(cudaStreamSynchronize(stream), what);
}

/// The same for tensors of equal shape, in any memory and with any row strides.
inline void copy_when_idle(const ConstTensor& from, const Tensor& to, cudaStream_t stream) {
  if (from.is_contiguous() && to.is_contiguous())
    return copy_when_idle(to.data, from.data, from.bytes(), stream, "copy a tensor");
  check(cudaStreamSynchronize(stream), "copy a tensor");
  check(cudaMemcpy2DAsync(to.data, to.stride_bytes(), from.data, from.stride_bytes(), from.row_bytes(),
                          static_cast<std::size_t>(from.rows), cudaMemcpyDefault, stream),
        "copy a tensor");
  check(cudaStreamSynchronize(stream), "copy a tensor");
}

}  // namespace shunt::device
