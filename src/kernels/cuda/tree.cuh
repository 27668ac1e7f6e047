// The reduction tree of docs/adr/0002, for a few elements of a token's sum at a time.
#pragma once

#include <cstdint>

#include "core/cuda/segment.hpp"
#include "kernels/cuda/elements.cuh"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// Sums of one level of the tree for a thread's elements. Starting from −0 is starting from the first term: −0 + x is
/// x, bit for bit.
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
struct Tree {
  Sum<kCount> rank, node, total;

  /// `closes` is the same for all threads of a warp.
  __device__ void add(const float (&values)[kCount], std::int32_t closes, DType wire) {
    rank.add(values);
    if (closes == static_cast<std::int32_t>(Closes::nothing)) return;
    node.add(rank.at);
    rank.restart();
    if (closes == static_cast<std::int32_t>(Closes::rank)) return;
    if (closes == static_cast<std::int32_t>(Closes::remote_node))
#pragma unroll
      for (int i = 0; i < kCount; ++i) node.at[i] = round_to(node.at[i], wire);
    total.add(node.at);
    node.restart();
  }
};

}  // namespace shunt::device
