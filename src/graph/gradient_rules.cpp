// The gradient rule of each op: its contributions to the gradients of its operands. Rules don't need gradients of
// results that have none.
#include "graph/autodiff.hpp"
#include "graph/rules.hpp"

namespace shunt::graph::gradients {
namespace {

Attributes over(std::vector<DimId> dims) { return {{"over", std::move(dims)}}; }

}  // namespace

void same(Backward& b, const Op& op) { b.contribute(op.operands[0], *b.gradient(op.results[0])); }

void rename(Backward& b, const Op& op) {
  const Attributes back = {{"from", op.attributes.dims("to")}, {"to", op.attributes.dims("from")}};
  b.contribute(op.operands[0], b.emit(OpKind::rename, {*b.gradient(op.results[0])}, back, op.operands[0]));
}

void embedding(Backward& b, const Op& op) {
  std::vector<DimId> vocabulary;
  for (const DimId dim : b.graph.type(op.operands[1]).dims)
    if (b.graph.dims[dim].role == DimRole::vocabulary) vocabulary = {dim};
  b.contribute(op.operands[1], b.emit(OpKind::embedding_dw, {op.operands[0], *b.gradient(op.results[0])},
                                      {{"vocabulary", vocabulary}}, op.operands[1]));
}

void rope(Backward& b, const Op& op) {
  Attributes back = op.attributes;
  back.set("inverse", 1 - op.attributes.integer("inverse"));
  b.contribute(op.operands[0], b.emit(OpKind::rope, {*b.gradient(op.results[0])}, back, op.operands[0]));
}

void matmul(Backward& b, const Op& op) {
  const ValueId dy = *b.gradient(op.results[0]);
  for (const std::size_t i : {0u, 1u}) {
    if (!b.is_wanted(op.operands[i])) continue;
    const ValueId other = op.operands[1 - i];
    const std::vector<DimId> mine = b.graph.type(op.operands[i]).dims;
    // Dimensions that only the other operand and the result have are summed; those that only this operand lacks are
    // broadcast.
    const std::vector<DimId> summed = without(shared(b.graph.type(dy).dims, b.graph.type(other).dims), mine);
    if (summed.empty()) {
      b.contribute_summed(op.operands[i], b.emit(OpKind::mul, {dy, other}, {}, op.operands[i]));
    } else {
      const std::vector<ValueId> pair = i == 0 ? std::vector{dy, other} : std::vector{other, dy};
      b.contribute_summed(op.operands[i], b.emit(OpKind::matmul, pair, over(summed), op.operands[i]));
    }
  }
}

void grouped_matmul(Backward& b, const Op& op) {
  const ValueId dy = *b.gradient(op.results[0]), rows = op.operands[0], weights = op.operands[1], plan = op.operands[2];
  const std::vector<DimId> row_dims = b.graph.type(rows).dims;  // a copy: emitting moves types
  if (b.is_wanted(rows)) {
    const std::vector<DimId> features = without(b.graph.type(dy).dims, row_dims);
    b.contribute(rows, b.emit(OpKind::grouped_matmul, {dy, weights, plan}, over(features), rows));
  }
  if (b.is_wanted(weights)) {
    const std::vector<DimId> summed = without(shared(row_dims, b.graph.type(dy).dims), b.graph.type(weights).dims);
    b.contribute(weights, b.emit(OpKind::grouped_matmul, {rows, dy, plan}, over(summed), weights));
  }
}

void softmax(Backward& b, const Op& op) {
  Attributes attributes = over(op.attributes.dims("over"));
  if (const Attribute* scale = op.attributes.find("scale")) attributes.set("scale", *scale);
  b.contribute(op.operands[0],
               b.emit(OpKind::softmax_dx, {*b.gradient(op.results[0]), op.results[0]}, attributes, op.operands[0]));
}

void attention(Backward& b, const Op& op) {
  std::vector<ValueId> operands = {*b.gradient(op.results[0]), op.results[0], op.results[1]};
  operands.insert(operands.end(), op.operands.begin(), op.operands.end());
  const OpId id = b.emit_several(OpKind::attention_dx, operands, op.attributes, op.operands);
  for (std::size_t i = 0; i < op.operands.size(); ++i) b.contribute(op.operands[i], b.graph.op(id).results[i]);
}

void norm(Backward& b, const Op& op) {
  const ValueId dy = *b.gradient(op.results[0]), x = op.operands[0], gain = op.operands[1];
  if (b.is_wanted(x)) b.contribute(x, b.emit(OpKind::norm_dx, {dy, x, gain}, op.attributes, x));
  if (b.is_wanted(gain)) b.contribute(gain, b.emit(OpKind::norm_dw, {dy, x}, op.attributes, gain));
  if (op.operands.size() == 3 && b.is_wanted(op.operands[2])) b.contribute_summed(op.operands[2], dy);
}

void map(Backward& b, const Op& op) {
  b.contribute(op.operands[0],
               b.emit(OpKind::map_dx, {*b.gradient(op.results[0]), op.operands[0]}, op.attributes, op.operands[0]));
}

void swiglu(Backward& b, const Op& op) {
  const OpId id =
      b.emit_several(OpKind::swiglu_dx, {*b.gradient(op.results[0]), op.operands[0], op.operands[1]}, {}, op.operands);
  for (const std::size_t i : {0u, 1u}) b.contribute(op.operands[i], b.graph.op(id).results[i]);
}

void add(Backward& b, const Op& op) {
  for (const ValueId operand : op.operands)
    if (b.is_wanted(operand)) b.contribute_summed(operand, *b.gradient(op.results[0]));
}

void mul(Backward& b, const Op& op) {
  for (const std::size_t i : {0u, 1u})
    if (b.is_wanted(op.operands[i]))
      b.contribute_summed(op.operands[i],
                          b.emit(OpKind::mul, {*b.gradient(op.results[0]), op.operands[1 - i]}, {}, op.operands[i]));
}

void scale(Backward& b, const Op& op) {
  b.contribute(op.operands[0], b.emit(OpKind::scale, {*b.gradient(op.results[0])}, op.attributes, op.operands[0]));
}

void reduce(Backward& b, const Op& op) {
  b.contribute(op.operands[0], b.emit(OpKind::expand, {*b.gradient(op.results[0])}, op.attributes, op.operands[0]));
}

void expand(Backward& b, const Op& op) { b.contribute_summed(op.operands[0], *b.gradient(op.results[0])); }

void pick(Backward& b, const Op& op) {
  b.contribute(op.operands[0], b.emit(OpKind::pick_dx, {*b.gradient(op.results[0]), op.operands[0], op.operands[1]},
                                      op.attributes, op.operands[0]));
}

void balance_loss(Backward& b, const Op& op) {
  b.contribute(op.operands[1], b.emit(OpKind::balance_loss_dx, {*b.gradient(op.results[0]), op.operands[0]},
                                      op.attributes, op.operands[1]));
}

void dispatch(Backward& b, const Op& op) {  // a token's rows are summed on its source
  b.contribute(op.operands[0],
               b.emit(OpKind::combine, {*b.gradient(op.results[0]), op.operands[1]}, {}, op.operands[0]));
}

void combine(Backward& b, const Op& op) {
  const ValueId dy = *b.gradient(op.results[0]), rows = op.operands[0], plan = op.operands[1];
  if (op.operands.size() == 2) {
    b.contribute(rows, b.emit(OpKind::dispatch, {dy, plan}, {}, rows));
    return;
  }
  const ValueId weights = op.operands[2];
  const OpId id = b.emit_several(OpKind::combine_dx, {dy, plan, weights, rows}, {}, {rows, weights});
  b.contribute(rows, b.graph.op(id).results[0]);
  b.contribute(weights, b.graph.op(id).results[1]);
}

void cross_entropy(Backward& b, const Op& op) {
  b.contribute(op.operands[0],
               b.emit(OpKind::cross_entropy_dx, {*b.gradient(op.results[0]), op.operands[0], op.operands[1]},
                      op.attributes, op.operands[0]));
}

}  // namespace shunt::graph::gradients
