// Device memory and copies between host and device, for a benchmark that waits for them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/memory.hpp"
#include "shunt/tensor.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
