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

/// result[i] = tree sum of weight × row[i], per element in fp32: rounded multiply, then rounded add, each sum starting
/// from its first term (rank sum, node sum of rank sums, total of node sums). No terms: zeros. The last term closes a
/// node.
void reduce_row(std::span<const Term> terms, std::size_t hidden, const ReduceFormat& format, std::byte* result,
                Store store);

}  // namespace shunt
