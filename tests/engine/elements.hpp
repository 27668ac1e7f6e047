// What tensors hold, in any memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "shunt/engine.hpp"

namespace shunt::test {

template <class AnyTensor>
AnyTensor first_rows(AnyTensor tensor, std::int64_t rows) {
  tensor.rows = rows;
  return tensor;
}

inline std::vector<std::byte> bytes_of(const Engine& engine, const ConstTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  engine.copy(tensor, borrow(static_cast<void*>(bytes.data()), tensor.dtype, tensor.rows, tensor.cols));
  return bytes;
}

/// The tensor is f32.
inline std::vector<float> floats_of(const Engine& engine, const ConstTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  engine.copy(tensor, borrow(static_cast<void*>(values.data()), f32, tensor.rows, tensor.cols));
  return values;
}

/// An array in the engine's memory.
template <class T>
std::vector<T> values_of(const Engine& engine, std::span<const T> array) {
  std::vector<T> values(array.size());
  const auto bytes = static_cast<std::int64_t>(array.size_bytes());
  engine.copy(borrow(static_cast<const void*>(array.data()), fp8_e4m3, 1, bytes, engine.memory()),
              borrow(static_cast<void*>(values.data()), fp8_e4m3, 1, bytes));
  return values;
}

/// Writes a tensor of any memory.
template <class T>
void write(const Engine& engine, const std::vector<T>& values, const Tensor& to) {
  engine.copy(borrow(static_cast<const void*>(values.data()), to.dtype, to.rows, to.cols), to);
}
inline void fill(const Engine& engine, const Tensor& tensor, float value) {
  write(engine, std::vector<float>(static_cast<std::size_t>(tensor.rows * tensor.cols), value), tensor);
}
inline void poison(const Engine& engine, const Tensor& tensor, std::byte pattern = std::byte{0xa5}) {
  write(engine, std::vector<std::byte>(tensor.bytes(), pattern), tensor);
}

inline bool all_are(const std::vector<std::byte>& bytes, std::byte pattern) {
  return std::ranges::all_of(bytes, [=](std::byte byte) { return byte == pattern; });
}

}  // namespace shunt::test
