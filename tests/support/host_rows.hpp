// Rows in plain memory, read and written element by element through the scalar conversions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shunt/tensor.hpp"

namespace shunt::test {

class HostRows {
 public:
  HostRows() = default;
  /// All zero.
  HostRows(DType dtype, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }

  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const;
  /// Rounds the value to the dtype.
  void set(std::int64_t row, std::int64_t col, float value);
  void set_bits(std::int64_t row, std::int64_t col, std::uint8_t bits);

  /// A row as f32.
  [[nodiscard]] std::vector<float> floats(std::int64_t row) const;
  void set_floats(std::int64_t row, const std::vector<float>& values);
  void copy_row(std::int64_t row, const HostRows& from, std::int64_t from_row);

  [[nodiscard]] Tensor tensor() { return borrow(bytes_.data(), dtype_, rows_, cols_); }
  [[nodiscard]] ConstTensor tensor() const {
    return borrow(static_cast<const void*>(bytes_.data()), dtype_, rows_, cols_);
  }

 private:
  [[nodiscard]] std::size_t offset(std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>(row * cols_ + col) * size_of(dtype_);
  }

  DType dtype_ = f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<std::byte> bytes_;
};

/// Empty if shape, dtype and every bit of the rows agree, else where they first differ. Rows whose `compared` is false
/// may hold anything; an empty `compared` means all.
std::string difference(const ConstTensor& actual, const HostRows& expected, const std::vector<bool>& compared = {});

}  // namespace shunt::test
