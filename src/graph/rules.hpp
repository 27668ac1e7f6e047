// The rules that the rows of the op table refer to. Each family has its own source file.
#pragma once

#include "graph/op_table.hpp"

namespace shunt::graph {

namespace types {
std::vector<Type> as_first(const OpView& op);
std::vector<Type> rename(const OpView& op);
std::vector<Type> part(const OpView& op);
std::vector<Type> join(const OpView& op);
std::vector<Type> embedding(const OpView& op);
std::vector<Type> embedding_dw(const OpView& op);
std::vector<Type> matmul(const OpView& op);
std::vector<Type> grouped_matmul(const OpView& op);
std::vector<Type> along(const OpView& op);
std::vector<Type> attention(const OpView& op);
std::vector<Type> attention_dx(const OpView& op);
std::vector<Type> norm(const OpView& op);
std::vector<Type> norm_dx(const OpView& op);
std::vector<Type> norm_dw(const OpView& op);
std::vector<Type> map(const OpView& op);
std::vector<Type> equal_operands(const OpView& op);
std::vector<Type> swiglu_dx(const OpView& op);
std::vector<Type> broadcast(const OpView& op);
std::vector<Type> reduce(const OpView& op);
std::vector<Type> expand(const OpView& op);
std::vector<Type> topk(const OpView& op);
std::vector<Type> pick(const OpView& op);
std::vector<Type> pick_dx(const OpView& op);
std::vector<Type> limit(const OpView& op);
std::vector<Type> count(const OpView& op);
std::vector<Type> balance_loss(const OpView& op);
std::vector<Type> balance_loss_dx(const OpView& op);
std::vector<Type> plan(const OpView& op);
std::vector<Type> dispatch(const OpView& op);
std::vector<Type> combine(const OpView& op);
std::vector<Type> combine_dx(const OpView& op);
std::vector<Type> cross_entropy(const OpView& op);
std::vector<Type> cross_entropy_dx(const OpView& op);
std::vector<Type> sgd(const OpView& op);
std::vector<Type> adam(const OpView& op);
}  // namespace types

namespace splits {
Split free(const OpView& op, DimId dim);
Split never(const OpView& op, DimId dim);
Split not_over(const OpView& op, DimId dim);
Split sum_over(const OpView& op, DimId dim);
Split grouped_matmul(const OpView& op, DimId dim);
Split embedding(const OpView& op, DimId dim);
Split embedding_dw(const OpView& op, DimId dim);
Split attention(const OpView& op, DimId dim);
Split attention_dx(const OpView& op, DimId dim);
Split norm_dw(const OpView& op, DimId dim);
Split choose(const OpView& op, DimId dim);
Split limit(const OpView& op, DimId dim);
Split count(const OpView& op, DimId dim);
Split shuffle(const OpView& op, DimId dim);
Split loss(const OpView& op, DimId dim);
Split opaque(const OpView& op, DimId dim);
}  // namespace splits

namespace work {
Work touch(const OpView& op);
Work opaque(const OpView& op);
Work embedding(const OpView& op);
Work matmul(const OpView& op);
Work grouped_matmul(const OpView& op);
Work attention(const OpView& op);
Work attention_dx(const OpView& op);
}  // namespace work

namespace gradients {
void same(Backward& backward, const Op& op);
void rename(Backward& backward, const Op& op);
void embedding(Backward& backward, const Op& op);
void rope(Backward& backward, const Op& op);
void matmul(Backward& backward, const Op& op);
void grouped_matmul(Backward& backward, const Op& op);
void softmax(Backward& backward, const Op& op);
void attention(Backward& backward, const Op& op);
void norm(Backward& backward, const Op& op);
void map(Backward& backward, const Op& op);
void swiglu(Backward& backward, const Op& op);
void add(Backward& backward, const Op& op);
void mul(Backward& backward, const Op& op);
void scale(Backward& backward, const Op& op);
void reduce(Backward& backward, const Op& op);
void expand(Backward& backward, const Op& op);
void pick(Backward& backward, const Op& op);
void balance_loss(Backward& backward, const Op& op);
void dispatch(Backward& backward, const Op& op);
void combine(Backward& backward, const Op& op);
void cross_entropy(Backward& backward, const Op& op);
}  // namespace gradients

}  // namespace shunt::graph
