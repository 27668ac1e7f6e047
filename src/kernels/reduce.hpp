// The reduction tree of combine, for one token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/closes.hpp"
#include "kernels/store.hpp"
#include "shunt/dtype.hpp"

namespace shunt {

struct Term {
  const std::byte* row;
  float weight;
  Closes closes;
};

struct ReduceFormat {
  DType terms;   ///< f32, bf16 or f16
  DType wire;    ///< f32, bf16 or f16
  DType result;  ///< f32, bf16 or f16
};

/// result[i] = tree sum of weight × row[i], per element in fp32: a rounded multiply, then a rounded add; each sum
/// starts from its first term (sums by rank, sums of those by node, the total of nodes). Without terms, zeros. The last
/// term must close a node.
void reduce_row(std::span<const Term> terms, std::size_t hidden, const ReduceFormat& format, std::byte* result,
                Store store);

}  // namespace shunt
