// Rows in host memory with access to single elements, and fp8 by its definition. Uses neither kernels nor the
// conversions of shunt/float_formats.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shunt/tensor.hpp"

namespace shunt {

/// The value of a code point of fp8_e4m3: bias 7, three bits of mantissa, no infinity, NaN if all bits of the magnitude
/// are set.
[[nodiscard]] float reference_f32_from_e4m3(std::uint8_t bits);
/// The nearest of the 256 code points, ties to even; larger values give ±448.
[[nodiscard]] std::uint8_t reference_e4m3_from_f32(float value);

/// A row as fp8 (the rules at the top of kernels/fp8.hpp).
struct QuantisedRow {
  std::vector<std::uint8_t> elements;
  std::vector<float> scales;  ///< one per block of kScaleBlock elements

  /// The quantised values in fp32.
  [[nodiscard]] std::vector<float> floats() const;
};
[[nodiscard]] QuantisedRow reference_quantise(std::span<const float> values);

class HostRows {
 public:
  HostRows() = default;
  /// Filled with zeros.
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
  void set_floats(std::int64_t row, std::span<const float> values);
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

/// The value or values, rounded to the dtype.
[[nodiscard]] float rounded_to(float value, DType dtype);
[[nodiscard]] std::vector<float> rounded_to(std::vector<float> values, DType dtype);
/// Elements of the dtype, converted to fp32.
[[nodiscard]] std::vector<float> widened(std::span<const std::byte> elements, DType dtype);

/// Describes the first difference in shape, dtype or bits; empty if there is none. Rows whose `compared` is false are
/// ignored; an empty `compared` means all rows are compared.
std::string difference(const ConstTensor& actual, const HostRows& expected, const std::vector<bool>& compared = {});

}  // namespace shunt
