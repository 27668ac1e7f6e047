// Copies of matrices in host memory.
#pragma once

#include <cstring>

#include "shunt/tensor.hpp"

namespace shunt {

/// Between equal shapes, whatever their strides; the two lie apart.
inline void copy_rows(const ConstTensor& from, const Tensor& to) {
  if (from.bytes() == 0) return;
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  for (std::int64_t i = 0; i < from.rows; ++i) std::memcpy(to.row(i), from.row(i), from.row_bytes());
}

}  // namespace shunt
