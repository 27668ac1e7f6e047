#include "layer/product.hpp"

#include "kernels/scale.hpp"

namespace shunt {
namespace {

/// Exact if widening, rounded once if narrowing.
void convert(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::size_t count) {
  scale_row(from, from_dtype, 1.0f, count, to, to_dtype, Store::cached);
}

}  // namespace

Product::Product(DType dtype, std::int64_t inputs, std::int64_t outputs)
    : dtype_(dtype),
      computed_(Gemm::has(dtype) ? dtype : f32),
      inputs_(static_cast<std::size_t>(inputs)),
      outputs_(static_cast<std::size_t>(outputs)),
      gemm_(computed_, inputs, outputs) {}

void Product::load(const std::byte* w) {
  loaded_ = w;
  if (!converts()) return;
  w_.reserve(inputs_ * outputs_ * size_of(computed_));
  convert(w, dtype_, w_.data(), computed_, inputs_ * outputs_);
  loaded_ = w_.data();
}

void Product::run(const std::byte* x, std::byte* y, std::int64_t rows) {
  if (!converts()) return gemm_.run(x, loaded_, y, rows);
  const auto num_rows = static_cast<std::size_t>(rows);
  x_.reserve(num_rows * inputs_ * size_of(computed_));
  y_.reserve(num_rows * outputs_ * size_of(computed_));
  convert(x, dtype_, x_.data(), computed_, num_rows * inputs_);
  gemm_.run(x_.data(), loaded_, y_.data(), rows);
  convert(y_.data(), computed_, y, dtype_, num_rows * outputs_);
}

}  // namespace shunt
