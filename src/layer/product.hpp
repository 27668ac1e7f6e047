// Products of blocks of rows with a sequence of matrices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layer/aligned_buffer.hpp"
#include "layer/gemm.hpp"

namespace shunt {

/// y = x · wᵀ as in Gemm, for f32 and bf16 on any machine: without bf16 products, operands are widened to f32 and
/// results rounded to bf16, block by block.
class Product {
 public:
  Product(DType dtype, std::int64_t inputs, std::int64_t outputs);

  /// w: [outputs, inputs], unchanged until the next load().
  void load(const std::byte* w);
  void run(const std::byte* x, std::byte* y, std::int64_t rows);

  [[nodiscard]] std::size_t workspace_bytes() const { return w_.bytes() + x_.bytes() + y_.bytes(); }

 private:
  [[nodiscard]] bool converts() const { return computed_ != dtype_; }

  DType dtype_;
  DType computed_;
  std::size_t inputs_;
  std::size_t outputs_;
  Gemm gemm_;
  const std::byte* loaded_ = nullptr;
  AlignedBuffer w_, x_, y_;  // in the computed dtype, if it differs
};

}  // namespace shunt
