// The work rules of ops: floating-point operations, and bytes read and written.
#include "graph/rules.hpp"

namespace shunt::graph::work {
namespace {

constexpr double kFlopsPerElement = 8;  // of a pointwise op; these are bound by memory

double bytes_touched(const OpView& op) {
  double bytes = 0;
  for (const Type& type : op.operands) bytes += static_cast<double>(bytes_of(op.dims, type));
  for (const Type& type : op.results) bytes += static_cast<double>(bytes_of(op.dims, type));
  return bytes;
}

Work product(const OpView& op, std::span<const DimId> all, std::span<const DimId> batch) {
  const auto& over = op.attributes.dims("over");
  const std::vector<DimId> in_both = shared(op.operands[0].dims, op.operands[1].dims);
  const auto count = [&](std::span<const DimId> dims) { return op.dims.count(dims); };
  Work work;
  work.flops = 2;
  for (const DimId dim : all) work.flops *= static_cast<double>(op.dims[dim].size);
  work.bytes = bytes_touched(op);
  work.k = count(over);
  work.batch = count(batch);
  work.m = count(without(op.operands[0].dims, in_both));
  work.n = count(without(op.operands[1].dims, united(in_both, batch)));
  return work;
}

/// Flops of q·k and p·v; a causal mask leaves half of them.
double attention_flops(const OpView& op, std::span<const Type> queries_keys_values) {
  const auto& values = queries_keys_values.back();
  double flops = 0;
  for (std::size_t i = 0; i + 1 < queries_keys_values.size(); i += 2)
    flops += static_cast<double>(op.dims.count(united(queries_keys_values[i].dims, queries_keys_values[i + 1].dims)));
  const std::vector<DimId> statistics = without(queries_keys_values[0].dims, op.attributes.dims("over"));
  return flops + static_cast<double>(op.dims.count(united(statistics, values.dims)));  // 2 · half
}

}  // namespace

Work touch(const OpView& op) {
  double elements = 0;
  for (const Type& type : op.results) elements += static_cast<double>(op.dims.count(type.dims));
  return {.flops = kFlopsPerElement * elements, .bytes = bytes_touched(op)};
}

Work opaque(const OpView&) { return {}; }

Work embedding(const OpView& op) {  // reads or writes only the rows that occur
  const Type& rows = op.operands[1].dims.size() > op.operands[0].dims.size() &&
                             without(op.operands[0].dims, op.operands[1].dims).empty()
                         ? op.operands[1]
                         : op.results[0];
  return {.flops = 0, .bytes = 2 * static_cast<double>(bytes_of(op.dims, rows))};
}

Work matmul(const OpView& op) {
  const std::vector<DimId> in_both = shared(op.operands[0].dims, op.operands[1].dims);
  return product(op, united(op.operands[0].dims, op.operands[1].dims), without(in_both, op.attributes.dims("over")));
}

Work grouped_matmul(const OpView& op) {
  DimId rows;
  for (const DimId dim : op.operands[2].dims)
    if (op.dims[dim].role == DimRole::rows) rows = dim;
  const std::vector<DimId> experts = {op.dims[rows].groups};
  Work work = product(op, without(united(op.operands[0].dims, op.operands[1].dims), experts), experts);
  // Each expert multiplies its share of the rows.
  std::int64_t& shared_rows = contains(op.attributes.dims("over"), rows) ? work.k : work.m;
  shared_rows = (shared_rows + work.batch - 1) / work.batch;
  return work;
}

Work attention(const OpView& op) { return {.flops = attention_flops(op, op.operands), .bytes = bytes_touched(op)}; }

Work attention_dx(const OpView& op) {  // computes the scores again, then two products for each of the forward pass
  return {.flops = 2.5 * attention_flops(op, op.operands.subspan(3)), .bytes = bytes_touched(op)};
}

}  // namespace shunt::graph::work
