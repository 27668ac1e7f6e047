// Device memory, and blocking copies between host and device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/shuffle/workload.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/memory.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

inline std::shared_ptr<std::byte> allocate_on_device(std::size_t bytes) { return device::allocate(bytes); }

/// Memory of the calling thread's current device, which ranks share.
inline Memory device_memory() {
  int device = 0;
  device::check(cudaGetDevice(&device), "look up the current device");
  return Memory::on_device(device);
}

inline Tensor tensor_on_device(DType dtype, std::int64_t rows, std::int64_t cols) {
  Tensor tensor{nullptr, dtype, rows, cols, nullptr, device_memory()};
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

/// Copies values to the host after the stream's work. Waits.
template <class T>
std::vector<T> download(const T* values, std::size_t count, cudaStream_t stream) {
  std::vector<T> host(count);
  device::check(cudaMemcpyAsync(host.data(), values, count * sizeof(T), cudaMemcpyDeviceToHost, stream), "download");
  device::check(cudaStreamSynchronize(stream), "download");
  return host;
}

/// Copies a tensor to device memory. Waits.
inline Tensor upload(const Tensor& host) {
  const Tensor tensor = tensor_on_device(host.dtype, host.rows, host.cols);
  device::check(cudaMemcpy(tensor.data, host.data, host.bytes(), cudaMemcpyHostToDevice), "upload");
  return tensor;
}

/// A rank's routing in device memory.
class UploadedRouting {
 public:
  UploadedRouting(const RankRouting& host, std::int32_t topk)
      : experts_(upload(std::span(host.experts))),
        weights_(upload(std::span(host.weights))),
        size_(host.experts.size()),
        topk_(topk) {}

  [[nodiscard]] Routing view() const { return {experts(), weights(), topk_, device_memory()}; }
  [[nodiscard]] std::span<std::int32_t> experts() const { return {experts_.get(), size_}; }
  [[nodiscard]] std::span<float> weights() const { return {weights_.get(), size_}; }

 private:
  std::shared_ptr<std::int32_t> experts_;
  std::shared_ptr<float> weights_;
  std::size_t size_;
  std::int32_t topk_;
};

}  // namespace shunt::bench
