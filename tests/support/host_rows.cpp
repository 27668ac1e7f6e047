#include "support/host_rows.hpp"

#include <fmt/format.h>

#include <cstring>

#include "shunt/float_formats.hpp"

namespace shunt::test {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

float element(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::f32: return load<float>(from);
    case DType::bf16: return f32_from_bf16(load<std::uint16_t>(from));
    case DType::f16: return f32_from_f16(load<std::uint16_t>(from));
    case DType::fp8_e4m3: return f32_from_e4m3(load<std::uint8_t>(from));
  }
  return 0;
}

}  // namespace

HostRows::HostRows(DType dtype, std::int64_t rows, std::int64_t cols)
    : dtype_(dtype), rows_(rows), cols_(cols), bytes_(static_cast<std::size_t>(rows * cols) * size_of(dtype)) {}

float HostRows::at(std::int64_t row, std::int64_t col) const { return element(&bytes_[offset(row, col)], dtype_); }

void HostRows::set(std::int64_t row, std::int64_t col, float value) {
  std::byte* to = &bytes_[offset(row, col)];
  switch (dtype_) {
    case DType::f32: return store(to, value);
    case DType::bf16: return store(to, bf16_from_f32(value));
    case DType::f16: return store(to, f16_from_f32(value));
    case DType::fp8_e4m3: return store(to, e4m3_from_f32(value));
  }
}

void HostRows::set_bits(std::int64_t row, std::int64_t col, std::uint8_t bits) {
  bytes_[offset(row, col)] = std::byte{bits};
}

std::vector<float> HostRows::floats(std::int64_t row) const {
  std::vector<float> values;
  for (std::int64_t col = 0; col < cols_; ++col) values.push_back(at(row, col));
  return values;
}

void HostRows::set_floats(std::int64_t row, const std::vector<float>& values) {
  for (std::int64_t col = 0; col < cols_; ++col) set(row, col, values[static_cast<std::size_t>(col)]);
}

void HostRows::copy_row(std::int64_t row, const HostRows& from, std::int64_t from_row) {
  std::memcpy(&bytes_[offset(row, 0)], &from.bytes_[from.offset(from_row, 0)],
              static_cast<std::size_t>(cols_) * size_of(dtype_));
}

std::string difference(const ConstTensor& actual, const HostRows& expected, const std::vector<bool>& compared) {
  const ConstTensor wanted = expected.tensor();
  if (actual.dtype != wanted.dtype || actual.rows != wanted.rows || actual.cols != wanted.cols)
    return fmt::format("is {} [{}, {}], expected {} [{}, {}]", to_string(actual.dtype), actual.rows, actual.cols,
                       to_string(wanted.dtype), wanted.rows, wanted.cols);
  const std::size_t size = size_of(wanted.dtype);
  for (std::int64_t row = 0; row < wanted.rows; ++row) {
    if (!compared.empty() && !compared[static_cast<std::size_t>(row)]) continue;
    if (std::memcmp(actual.row(row), wanted.row(row), wanted.row_bytes()) == 0) continue;
    for (std::int64_t col = 0; col < wanted.cols; ++col) {
      const std::byte* got = actual.row(row) + static_cast<std::size_t>(col) * size;
      if (std::memcmp(got, wanted.row(row) + static_cast<std::size_t>(col) * size, size) != 0)
        return fmt::format("[{}, {}] is {:.9g}, expected {:.9g}", row, col, element(got, wanted.dtype),
                           expected.at(row, col));
    }
  }
  return "";
}

}  // namespace shunt::test
