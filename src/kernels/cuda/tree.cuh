// The reduction tree of docs/adr/0002, for a few elements of a token's sum at a time.
#pragma once

#include <cstdint>

#include "core/cuda/segment.hpp"
#include "kernels/cuda/elements.cuh"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// Sums of one level of the tree for a thread's elements. Starting from −0 is starting from the first term: −0 + x is
/// x, bit for bit. Terms are anything with an index.
template <int kCount>
struct Sum {
  float at[kCount];

  __device__ Sum() { restart(); }
  __device__ void restart() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = -0.0f;
  }
  template <class Term>
  __device__ void start(const Term& term) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = term[i];
  }
  template <class Term>
  __device__ void add(const Term& term) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = __fadd_rn(at[i], term[i]);
  }
};

template <int kCount>
struct Tree {
  Sum<kCount> rank, node, total;
  bool is_rank_open = false;  ///< else its sum has no terms, and what it holds means nothing

  /// `closes` is the same for all threads of a warp. Most ranks have one or two terms, so it pays not to add to
  /// nothing.
  template <class Term>
  __device__ void add(const Term& term, std::int32_t closes, DType wire) {
    if (closes == static_cast<std::int32_t>(Closes::nothing)) {
      is_rank_open ? rank.add(term) : rank.start(term);
      is_rank_open = true;
      return;
    }
    if (is_rank_open) {
      rank.add(term);
      node.add(rank.at);
    } else {
      node.add(term);
    }
    is_rank_open = false;
    if (closes == static_cast<std::int32_t>(Closes::rank)) return;
    if (closes == static_cast<std::int32_t>(Closes::remote_node))
#pragma unroll
      for (int i = 0; i < kCount; ++i) node.at[i] = round_to(node.at[i], wire);
    total.add(node.at);
    node.restart();
  }
};

}  // namespace shunt::device
