// The reduction tree of a token's rows, for a few neighbouring elements; docs/adr/0002 defines it.
#pragma once

#include "core/cuda/segment.hpp"
#include "kernels/cuda/elements.cuh"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// Sums of one level of the tree. Starting from −0 is starting from the first term: −0 + x is x, bit for bit.
template <int kCount>
struct Sum {
  float at[kCount];

  __device__ Sum() { restart(); }
  __device__ void restart() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = -0.0f;
  }
  __device__ void add(const float (&terms)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = __fadd_rn(at[i], terms[i]);
  }
};

template <int kCount>
struct SumTree {
  Sum<kCount> rank, node, total;

  /// Of a row that a thread has loaded, the elements from `first` on. The term is the same for all threads of a block.
  template <class Row>
  __device__ void add(const Term& term, const Row& row, int first, DType wire) {
    float weighted[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) weighted[i] = __fmul_rn(term.weight, row.at(first + i));
    rank.add(weighted);
    if (term.closes == static_cast<std::int16_t>(Closes::nothing)) return;
    node.add(rank.at);
    rank.restart();
    if (term.closes == static_cast<std::int16_t>(Closes::rank)) return;
    if (term.closes == static_cast<std::int16_t>(Closes::remote_node))
#pragma unroll
      for (int i = 0; i < kCount; ++i) node.at[i] = round_to(node.at[i], wire);
    total.add(node.at);
    node.restart();
  }
};

}  // namespace shunt::device
