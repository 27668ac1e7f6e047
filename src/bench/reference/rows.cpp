#include "bench/reference/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "shunt/float_formats.hpp"

namespace shunt {
namespace {

constexpr std::uint8_t kSign = 0x80, kNan = 0x7f, kLargest = 0x7e;

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
    case DType::fp8_e4m3: return reference_f32_from_e4m3(load<std::uint8_t>(from));
  }
  return 0;
}

void set_element(std::byte* to, DType dtype, float value) {
  switch (dtype) {
    case DType::f32: return store(to, value);
    case DType::bf16: return store(to, bf16_from_f32(value));
    case DType::f16: return store(to, f16_from_f32(value));
    case DType::fp8_e4m3: return store(to, reference_e4m3_from_f32(value));
  }
}

/// The values of the code points from 0 to kLargest, ascending.
std::array<float, kLargest + 1> magnitudes_of_e4m3() {
  std::array<float, kLargest + 1> all{};
  for (int code = 0; code <= kLargest; ++code) {
    const int exponent = code / 8, mantissa = code % 8;
    all[static_cast<std::size_t>(code)] = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return all;
}

}  // namespace

float reference_f32_from_e4m3(std::uint8_t bits) {
  static const auto magnitudes = magnitudes_of_e4m3();
  const std::uint8_t code = bits & ~kSign;
  const float magnitude = code == kNan ? std::numeric_limits<float>::quiet_NaN() : magnitudes[code];
  return std::copysign(magnitude, (bits & kSign) != 0 ? -1.0f : 1.0f);
}

std::uint8_t reference_e4m3_from_f32(float value) {
  static const auto magnitudes = magnitudes_of_e4m3();
  const std::uint8_t sign = std::signbit(value) ? kSign : 0;
  if (std::isnan(value)) return sign | kNan;
  const float magnitude = std::fabs(value);
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.end()) return sign | kLargest;
  const auto code = static_cast<std::uint8_t>(above - magnitudes.begin());
  if (*above == magnitude) return sign | code;
  const auto below = static_cast<std::uint8_t>(code - 1);
  const double to_above = double{*above} - double{magnitude}, to_below = double{magnitude} - double{magnitudes[below]};
  if (to_above != to_below) return sign | (to_above < to_below ? code : below);
  return sign | (code % 2 == 0 ? code : below);
}

QuantisedRow reference_quantise(std::span<const float> values) {
  QuantisedRow row;
  for (std::size_t begin = 0; begin < values.size(); begin += kScaleBlock) {
    const auto block = values.subspan(begin, std::min(kScaleBlock, values.size() - begin));
    float amax = 0x1p-100f;
    for (const float value : block) amax = std::max(amax, std::fabs(value));
    const bool is_finite = std::ranges::all_of(block, [](float value) { return std::isfinite(value); });
    row.scales.push_back(is_finite ? amax / 448.0f : std::numeric_limits<float>::quiet_NaN());
    const float factor = 448.0f / amax;
    for (const float value : block) row.elements.push_back(is_finite ? reference_e4m3_from_f32(value * factor) : kNan);
  }
  return row;
}

std::vector<float> QuantisedRow::floats() const {
  std::vector<float> values;
  for (std::size_t i = 0; i < elements.size(); ++i)
    values.push_back(reference_f32_from_e4m3(elements[i]) * scales[i / kScaleBlock]);
  return values;
}

HostRows::HostRows(DType dtype, std::int64_t rows, std::int64_t cols)
    : dtype_(dtype), rows_(rows), cols_(cols), bytes_(static_cast<std::size_t>(rows * cols) * size_of(dtype)) {}

float HostRows::at(std::int64_t row, std::int64_t col) const { return element(&bytes_[offset(row, col)], dtype_); }

void HostRows::set(std::int64_t row, std::int64_t col, float value) {
  set_element(&bytes_[offset(row, col)], dtype_, value);
}

void HostRows::set_bits(std::int64_t row, std::int64_t col, std::uint8_t bits) {
  bytes_[offset(row, col)] = std::byte{bits};
}

std::vector<float> HostRows::floats(std::int64_t row) const {
  const auto row_bytes = static_cast<std::size_t>(cols_) * size_of(dtype_);
  return widened(std::span(bytes_).subspan(offset(row, 0), row_bytes), dtype_);
}

void HostRows::set_floats(std::int64_t row, std::span<const float> values) {
  for (std::int64_t col = 0; col < cols_; ++col) set(row, col, values[static_cast<std::size_t>(col)]);
}

void HostRows::copy_row(std::int64_t row, const HostRows& from, std::int64_t from_row) {
  std::memcpy(&bytes_[offset(row, 0)], &from.bytes_[from.offset(from_row, 0)],
              static_cast<std::size_t>(cols_) * size_of(dtype_));
}

float rounded_to(float value, DType dtype) {
  std::array<std::byte, sizeof(float)> bytes{};
  set_element(bytes.data(), dtype, value);
  return element(bytes.data(), dtype);
}

std::vector<float> rounded_to(std::vector<float> values, DType dtype) {
  for (float& value : values) value = rounded_to(value, dtype);
  return values;
}

std::vector<float> widened(std::span<const std::byte> elements, DType dtype) {
  std::vector<float> values(elements.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(elements.data() + i * size_of(dtype), dtype);
  return values;
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

}  // namespace shunt
