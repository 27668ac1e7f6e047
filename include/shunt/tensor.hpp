// Row-major matrices: pointer, dtype, shape, kind of memory and, if shunt owns the memory, a reference to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shunt/dtype.hpp"

namespace shunt {

/// A kind of memory: host memory, or that of a CUDA device.
struct Memory {
  std::int32_t device = -1;  ///< −1: host memory

  static constexpr Memory host() { return {}; }
  static constexpr Memory on_device(std::int32_t index) { return {index}; }
  [[nodiscard]] constexpr bool is_host() const { return device < 0; }
  bool operator==(const Memory&) const = default;
};

template <class Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// Keeps the memory alive; null if the tensor borrows the caller's memory.
  std::shared_ptr<const void> owner = nullptr;
  Memory memory = Memory::host();
  /// Elements from the start of a row to the start of the next, at least cols; 0 means cols.
  std::int64_t row_stride = 0;

  [[nodiscard]] std::size_t row_bytes() const { return static_cast<std::size_t>(cols) * size_of(dtype); }
  /// Bytes of all elements, without the gaps between rows.
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes(); }
  [[nodiscard]] std::size_t stride_bytes() const {
    return row_stride == 0 ? row_bytes() : static_cast<std::size_t>(row_stride) * size_of(dtype);
  }
  /// Bytes from the start of the first row to the end of the last.
  [[nodiscard]] std::size_t extent_bytes() const {
    return rows == 0 ? 0 : static_cast<std::size_t>(rows - 1) * stride_bytes() + row_bytes();
  }
  [[nodiscard]] bool is_contiguous() const { return extent_bytes() == bytes(); }
  [[nodiscard]] Byte* row(std::int64_t i) const { return data + static_cast<std::size_t>(i) * stride_bytes(); }

  /// The elements of a contiguous tensor as T, which must match dtype (float, std::uint16_t, std::uint8_t).
  template <class T>
  [[nodiscard]] auto as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data), static_cast<std::size_t>(rows * cols));
  }
};

/// A writable tensor.
using Tensor = BasicTensor<std::byte>;

/// A read-only tensor.
struct ConstTensor : BasicTensor<const std::byte> {
  ConstTensor() = default;
  explicit ConstTensor(BasicTensor<const std::byte> tensor) : BasicTensor(std::move(tensor)) {}
  ConstTensor(const Tensor& t)  // NOLINT: as with pointers, adding const needs no cast
      : BasicTensor{t.data, t.dtype, t.rows, t.cols, t.owner, t.memory, t.row_stride} {}
};

/// Borrows the caller's memory, which must outlive every operation that uses the tensor.
inline Tensor borrow(void* data, DType dtype, std::int64_t rows, std::int64_t cols, Memory memory = Memory::host()) {
  return {static_cast<std::byte*>(data), dtype, rows, cols, nullptr, memory};
}
inline ConstTensor borrow(const void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                          Memory memory = Memory::host()) {
  return ConstTensor({static_cast<const std::byte*>(data), dtype, rows, cols, nullptr, memory});
}

}  // namespace shunt
