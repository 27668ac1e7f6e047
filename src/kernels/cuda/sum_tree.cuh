// The reduction tree of a token's rows, for a few neighbouring elements; docs/adr/0002 defines it.
#pragma once

#include "core/cuda/segment.hpp"
#include "kernels/cuda/elements.cuh"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// Sums at one level of the tree. Starting from −0 is the same as starting from the first term: −0 + x is x, bit for
/// bit. Terms are anything with an index operator.
template <int kCount>
struct Sum {
  float at[kCount];

  __device__ Sum() { restart(); }
  __device__ void restart() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = -0.0f;
  }
  template <class Terms>
  __device__ void start(const Terms& terms) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = terms[i];
  }
  template <class Terms>
  __device__ void add(const Terms& terms) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = __fadd_rn(at[i], terms[i]);
  }
};

template <int kCount>
struct SumTree {
  Sum<kCount> rank, node, total;

  /// Adds elements `first` and following of a loaded row. The term is the same for all threads of a block.
  template <class Row>
  __device__ void add(const Term& term, const Row& row, int first, DType wire) {
    float weighted[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) weighted[i] = __fmul_rn(term.weight, row.at(first + i));
    rank.add(weighted);
    if (term.closes == static_cast<std::int16_t>(Closes::nothing)) return;
    add_rank(rank.at, term.closes, wire);
    rank.restart();
  }

  /// Adds a completed rank sum; `closes` tells which other sums are complete.
  template <class Sums>
  __device__ void add_rank(const Sums& sums, std::int32_t closes, DType wire) {
    node.add(sums);
    if (closes == static_cast<std::int32_t>(Closes::rank)) return;
    if (closes == static_cast<std::int32_t>(Closes::remote_node))
#pragma unroll
      for (int i = 0; i < kCount; ++i) node.at[i] = round_to(node.at[i], wire);
    total.add(node.at);
    node.restart();
  }
};

/// The same sums with fewer instructions and more branches, for kernels that are bound by instructions, not by memory:
/// most ranks have one or two rows, and additions to empty sums are skipped.
template <int kCount>
struct SkippingSumTree {
  SumTree<kCount> tree;
  bool is_rank_open = false;  // else the rank sum has no terms, and its value is unspecified

  /// `closes` is the same for all threads of a warp.
  template <class Terms>
  __device__ void add(const Terms& terms, std::int32_t closes, DType wire) {
    if (closes == static_cast<std::int32_t>(Closes::nothing)) {
      is_rank_open ? tree.rank.add(terms) : tree.rank.start(terms);
      is_rank_open = true;
      return;
    }
    if (is_rank_open) {
      tree.rank.add(terms);
      tree.add_rank(tree.rank.at, closes, wire);
    } else {
      tree.add_rank(terms, closes, wire);
    }
    is_rank_open = false;
  }
};

}  // namespace shunt::device
