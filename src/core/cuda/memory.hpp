// Device memory that its owner frees.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "core/cuda/check.hpp"

namespace shunt::device {

/// Must not be called while ranks wait for each other on the device: allocating may wait for them.
template <class T = std::byte>
std::shared_ptr<T> allocate(std::size_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, count > 0 ? count * sizeof(T) : 1), "allocate device memory");
  return {static_cast<T*>(data), [](T* freed) { (void)cudaFree(freed); }};
}

}  // namespace shunt::device
