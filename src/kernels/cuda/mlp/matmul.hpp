// Products of rows with weights, by cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shunt/dtype.hpp"

namespace shunt::device {

/// y = x · wᵀ with x: [rows, inputs], w: [outputs, inputs], y: [rows, outputs], all of one dtype and summed in fp32.
struct MatmulShape {
  DType dtype;  ///< f32, bf16 or f16
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
  std::int64_t x_stride;       ///< elements from row to row
  std::int32_t batch;          ///< number of products, with operands in arrays of pointers; 0: one product
  std::size_t alignment = 16;  ///< of all operands, in bytes: a power of two up to 256
};

/// Never splits a sum over blocks, so a row's result does not depend on the number of rows. Can be captured.
class Matmul {
 public:
  explicit Matmul(const MatmulShape& shape);

  /// w, x, y: the operands or, in a batch, device arrays of pointers to them.
  void run(const void* w, const void* x, void* y, cudaStream_t stream) const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

/// Throws Error(unsupported) if cuBLASLt can't be loaded.
void load_matmul();

}  // namespace shunt::device
