#include "kernels/reduce.hpp"

#include <cstring>

#include "core/fail.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce.cpp"
#include <hwy/foreach_target.h>

#include "kernels/row-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

template <class Format>
struct TreeSum {
  std::span<const Term> terms;
  DType wire;

  // Computes one line of every term per call, with the sums in registers. The sequence of closes is the same for all
  // groups of a row, so the branches are predicted.
  template <class Extent>
  HWY_INLINE Group operator()(std::size_t first, Extent extent) const {
    // −0 + x is x for every x, including −0, so a sum that starts from −0 starts from its first term.
    const Group nothing = splat(-0.0f);
    Group rank = nothing;
    Group node = nothing;
    Group total = nothing;
    for (const Term& term : terms) {
      rank = add(rank, multiply(splat(term.weight), load<Format>(term.row, first, extent)));
      if (term.closes == Closes::nothing) continue;
      node = add(node, rank);
      rank = nothing;
      if (term.closes == Closes::rank) continue;
      total = add(total, term.closes == Closes::remote_node ? on_wire(node) : node);
      node = nothing;
    }
    return total;
  }

  // Few sums cross nodes, so the format is selected at run time, which avoids a further template dimension.
  Group on_wire(const Group& sum) const {
    if (wire == DType::bf16) return round_to<Bf16Format>(sum);
    if (wire == DType::f16) return round_to<F16Format>(sum);
    return sum;
  }
};

void reduce(std::span<const Term> terms, std::size_t hidden, const ReduceFormat& format, std::byte* result, Store how) {
  if (format.terms == DType::bf16 && format.result == DType::bf16)
    return write_row<Bf16PairsFormat>(result, hidden, how, TreeSum<Bf16PairsFormat>{terms, format.wire});
  with_format(format.terms, [=]<class Terms>(Terms) HWY_ATTR {
    with_format(format.result, [=]<class Result>(Result) HWY_ATTR {
      write_row<Result>(result, hidden, how, TreeSum<Terms>{terms, format.wire});
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shunt {

HWY_EXPORT(reduce);

void reduce_row(std::span<const Term> terms, std::size_t hidden, const ReduceFormat& format, std::byte* result,
                Store store) {
  if (terms.empty()) {
    std::memset(result, 0, hidden * size_of(format.result));
    return;
  }
  SHUNT_CHECK(terms.back().closes >= Closes::node);
  HWY_DYNAMIC_DISPATCH(reduce)(terms, hidden, format, result, store);
}

}  // namespace shunt
#endif
