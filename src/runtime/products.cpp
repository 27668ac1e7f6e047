// Matrix products over named dimensions.
#include "runtime/contraction.hpp"
#include "runtime/kernels.hpp"

namespace shunt::runtime::kernels {
void matmul(const OpCall& call) { contract(call.in(0), call.in(1), call.op.attributes.dims("over"), call.out()); }

// Rows of an expert are neighbours: one product for each.
void grouped_matmul(const OpCall& call) {
  const graph::DimId rows = call.axis_of_role(call.in(0), graph::DimRole::rows).dim;
  const graph::DimId experts = call.graph.dims[rows].groups;
  for (std::size_t expert = 0; expert + 1 < call.expert_offsets.size(); ++expert) {
    const std::int64_t begin = call.expert_offsets[expert], size = call.expert_offsets[expert + 1] - begin;
    const auto of_expert = [&](const View& view) {
      return view.find(experts) ? element(slice(view, rows, begin, size), experts, static_cast<std::int64_t>(expert))
                                : slice(view, rows, begin, size);
    };
    contract(of_expert(call.in(0)), of_expert(call.in(1)), call.op.attributes.dims("over"), of_expert(call.out()));
  }
}

}  // namespace shunt::runtime::kernels
