// Device memory and copies between host and device, for a benchmark that waits for them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/shuffle/config.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/memory.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

inline std::shared_ptr<std::byte> allocate_on_device(std::size_t bytes) { return device::allocate(bytes); }

inline Tensor tensor_on_device(DType dtype, std::int64_t rows, std::int64_t cols) {
  Tensor tensor{nullptr, dtype, rows, cols, nullptr};
  const auto memory = allocate_on_device(tensor.bytes());
  tensor.data = memory.get();
  tensor.owner = memory;
  return tensor;
}

template <class T>
std::shared_ptr<T> upload(std::span<const T> values) {
  const auto memory = allocate_on_device(values.size_bytes());
  device::check(cudaMemcpy(memory.get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "upload");
  return {memory, reinterpret_cast<T*>(memory.get())};
}

/// What so many values on the device are once the stream's work is done. Waits.
template <class T>
std::vector<T> download(const T* values, std::size_t count, cudaStream_t stream) {
  std::vector<T> host(count);
  device::check(cudaMemcpyAsync(host.data(), values, count * sizeof(T), cudaMemcpyDeviceToHost, stream), "download");
  device::check(cudaStreamSynchronize(stream), "download");
  return host;
}

/// A tensor of host memory as one of the device. Waits.
inline Tensor upload(const Tensor& host) {
  const Tensor tensor = tensor_on_device(host.dtype, host.rows, host.cols);
  device::check(cudaMemcpy(tensor.data, host.data, host.bytes(), cudaMemcpyHostToDevice), "upload");
  return tensor;
}

/// Bytes of a device's memory that a benchmark lends to a rank's shuffle: what any rank holds at most: its rows twice
/// (scales included where they are fp8, and then narrower than experts' outputs), its result, a plan or two.
inline std::size_t heap_bytes(const ShuffleConfig& config, std::int64_t rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(config.hidden) * size_of(config.expert_dtype());
  const auto entries = static_cast<std::size_t>(config.tokens) * static_cast<std::size_t>(config.topk);
  const auto maps = entries * static_cast<std::size_t>(config.ranks) * 16;
  return 2 * static_cast<std::size_t>(rows) * row_bytes + static_cast<std::size_t>(config.tokens) * row_bytes +
         3 * (entries * 48 + maps) + (std::size_t{64} << 20);
}

}  // namespace shunt::bench
