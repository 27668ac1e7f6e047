// The split rules of ops.
#include <algorithm>

#include "graph/rules.hpp"

namespace shunt::graph::splits {
namespace {

bool is_over(const OpView& op, DimId dim) { return contains(op.attributes.dims("over"), dim); }
DimRole role(const OpView& op, DimId dim) { return op.dims[dim].role; }

}  // namespace

Split free(const OpView&, DimId) { return Split::free; }
Split never(const OpView&, DimId) { return Split::never; }

Split not_over(const OpView& op, DimId dim) {
  const bool is_renamed = contains(op.attributes.dims("from"), dim) || contains(op.attributes.dims("to"), dim);
  return is_over(op, dim) || is_renamed ? Split::never : Split::free;
}

Split sum_over(const OpView& op, DimId dim) { return is_over(op, dim) ? Split::sum : Split::free; }

Split grouped_matmul(const OpView& op, DimId dim) {
  switch (role(op, dim)) {
    case DimRole::local_expert: return Split::never;
    default: return sum_over(op, dim);  // a plan's tokens and rows are split together
  }
}

Split embedding(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::vocabulary ? Split::never : Split::free;
}

Split embedding_dw(const OpView& op, DimId dim) {
  if (role(op, dim) == DimRole::vocabulary) return Split::never;
  return op.operands[0].has(dim) ? Split::sum : Split::free;
}

Split attention(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::batch || role(op, dim) == DimRole::heads ? Split::free : attention_dx(op, dim);
}

Split attention_dx(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::batch ? Split::free : Split::never;  // a key may serve several heads
}

Split norm_dw(const OpView& op, DimId dim) { return is_over(op, dim) ? Split::never : Split::sum; }

Split choose(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::expert || role(op, dim) == DimRole::choice ? Split::never : Split::free;
}

Split limit(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::batch ? Split::chain : Split::never;  // parts are in token order
}

Split count(const OpView& op, DimId dim) { return role(op, dim) == DimRole::expert ? Split::never : Split::sum; }

Split shuffle(const OpView& op, DimId dim) {
  return role(op, dim) == DimRole::batch || role(op, dim) == DimRole::rows ? Split::free : Split::never;
}

Split loss(const OpView& op, DimId dim) { return is_over(op, dim) ? Split::never : Split::sum; }

Split opaque(const OpView& op, DimId dim) {
  const bool is_kept =
      std::all_of(op.results.begin(), op.results.end(), [&](const Type& type) { return type.has(dim); });
  return is_kept && contains(op.attributes.dims("split"), dim) ? Split::free : Split::never;
}

}  // namespace shunt::graph::splits
