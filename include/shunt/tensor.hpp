// Row-major matrices of rows: a pointer, a dtype, a shape and, where shunt owns the memory, a reference to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shunt/dtype.hpp"

namespace shunt {

template <class Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// Keeps the memory alive; empty when the tensor merely borrows the caller's memory.
  std::shared_ptr<const void> owner = nullptr;

  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(cols) * size_of(dtype); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes(); }
  [[nodiscard]] Byte* row(std::int64_t i) const { return data + static_cast<std::size_t>(i) * row_bytes(); }

  /// The elements as T, which the caller must choose to match dtype (float, std::uint16_t, std::uint8_t).
  template <class T>
  [[nodiscard]] auto as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data), static_cast<std::size_t>(rows * cols));
  }
};

/// A tensor that may be written through.
using Tensor = BasicTensor<std::byte>;

/// A tensor that is only read.
struct ConstTensor : BasicTensor<const std::byte> {
  ConstTensor() = default;
  explicit ConstTensor(BasicTensor<const std::byte> tensor) : BasicTensor(std::move(tensor)) {}
  ConstTensor(const Tensor& t)  // NOLINT: as with pointers, adding const needs no cast
      : BasicTensor{t.data, t.dtype, t.rows, t.cols, t.owner} {}
};

/// Borrows the caller's memory, which must outlive every operation that uses the tensor.
inline Tensor borrow(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return {static_cast<std::byte*>(data), dtype, rows, cols, nullptr};
}
inline ConstTensor borrow(const void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  return ConstTensor({static_cast<const std::byte*>(data), dtype, rows, cols, nullptr});
}

}  // namespace shunt
