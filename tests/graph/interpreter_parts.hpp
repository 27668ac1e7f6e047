// The interpreter's class; dense layers, routing, and the rest are in separate source files.
#pragma once

#include <cmath>
#include <stdexcept>

#include "graph/interpreter.hpp"
#include "graph/tensor_space.hpp"

namespace shunt::graph::test {

/// One rank. Ranks advance op by op, so that the peers' values that an op reads exist.
class Interpreter {
 public:
  Interpreter(const Graph& graph, const Values& given, std::size_t rank, const std::vector<Interpreter>& ranks)
      : graph_(graph), given_(given), rank_(rank), ranks_(ranks), values_(graph.values().size()) {}

  void evaluate(const Op& op);
  [[nodiscard]] Values values() const {
    Values all;
    for (std::size_t i = 0; i < values_.size(); ++i) all[graph_.value(ValueId(i)).name] = values_[i];
    return all;
  }

 private:
  const Tensor& in(const Op& op, std::size_t i) const { return values_[op.operands[i].index()]; }

  /// Sizes of rows follow from the operands.
  Tensor blank(const Op& op, std::size_t result, const Space& known) const {
    Tensor tensor;
    tensor.dims = graph_.type(op.results[result]).dims;
    std::int64_t count = 1;
    for (const DimId dim : tensor.dims) {
      tensor.sizes.push_back(contains(known.dims, dim) ? known.size(dim) : graph_.dims[dim].size);
      count *= tensor.sizes.back();
    }
    tensor.data.assign(static_cast<std::size_t>(count), 0.0);
    return tensor;
  }

  Space space_of(const Op& op) const {
    Space space;
    for (const ValueId operand : op.operands) space.add(values_[operand.index()]);
    return space;
  }

  Space space_of(const Tensor& tensor) const {
    Space space;
    space.add(tensor);
    return space;
  }

  Space outer(const Tensor& tensor, const std::vector<DimId>& over) const {
    Space space;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i)
      if (!contains(over, tensor.dims[i])) space.add(tensor.dims[i], tensor.sizes[i]);
    return space;
  }

  Space inner(const Tensor& tensor, const std::vector<DimId>& over) const {
    Space space;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i)
      if (contains(over, tensor.dims[i])) space.add(tensor.dims[i], tensor.sizes[i]);
    return space;
  }

  /// First index of a part in its whole.
  std::int64_t begin_of(DimId dim) const {
    const Dim& d = graph_.dims[dim];
    if (!d.whole.valid()) return 0;
    return begin_of(d.whole) + graph_.dims[d.whole].size * d.part / d.parts;
  }

  DimId of_role(const Tensor& tensor, DimRole role) const {
    for (const DimId dim : tensor.dims)
      if (graph_.dims[dim].role == role) return dim;
    throw std::logic_error("no dimension of this role");
  }

  static Index merged(Index a, const Index& b) {
    for (const auto& [dim, value] : b) a[dim] = value;
    return a;
  }
  void put(const Op& op, std::size_t result, Tensor tensor) { values_[op.results[result].index()] = std::move(tensor); }

  template <class F>
  void pointwise(const Op& op, std::size_t result, const F& f) {
    Tensor out = blank(op, result, space_of(op));
    for_each(space_of(out), [&](Index& i) { out.data[offset(out, i)] = f(i); });
    put(op, result, std::move(out));
  }
  void rename(const Op& op);
  void part(const Op& op);
  void join(const Op& op);
  void embedding(const Op& op);
  void embedding_dw(const Op& op);
  void rope(const Op& op);
  void matmul(const Op& op, const Tensor* plan);
  void softmax(const Op& op);
  void softmax_dx(const Op& op);
  /// exp(scores) of every (query, key) that the mask keeps, from pairs of queries and keys that start at operand
  /// `first`.
  double score(const Op& op, std::size_t first, std::size_t v, const Index& i) const;
  std::int64_t keys_seen(const Op& op, const Index& i) const;
  void attention(const Op& op);
  void attention_dx(const Op& op);
  void norm(const Op& op);
  void reduce(const Op& op);
  void all_reduce(const Op& op);
  void topk(const Op& op);

  /// A token's picked scores; 0 where the choice was dropped.
  template <class Visit>
  void for_each_pick(const Tensor& scores, const Tensor& experts, const Visit& visit) {
    const DimId expert = of_role(scores, DimRole::expert), choice = of_role(experts, DimRole::choice);
    for_each(outer(experts, {choice}), [&](Index& i) {
      std::vector<Index> score_at, choice_at;
      for (std::int64_t k = 0; k < graph_.dims[choice].size; ++k) {
        choice_at.push_back(merged(i, {{choice, k}}));
        const auto e = static_cast<std::int64_t>(at(experts, choice_at.back()));
        if (e < 0)
          choice_at.pop_back();
        else
          score_at.push_back(merged(i, {{expert, e}}));
      }
      visit(score_at, choice_at);
    });
  }
  void pick(const Op& op);
  void pick_dx(const Op& op);
  void limit(const Op& op);
  void count(const Op& op);
  void balance_loss(const Op& op);
  void balance_loss_dx(const Op& op);
  void plan(const Op& op);
  /// The source token of a plan's row.
  Index token_of(const Tensor& plan, const Row& row) const;
  /// Visits a plan's rows, on any rank, that are copies of this rank's tokens: visit(peer, row, token).
  template <class Visit>
  void for_each_own_row(const Op& op, std::size_t plan, const Visit& visit) const {
    for (const Interpreter& peer : ranks_)
      for (std::size_t r = 0; r < peer.in(op, plan).rows.size(); ++r)
        if (const Row& row = peer.in(op, plan).rows[r]; row.rank == rank_)
          visit(peer, static_cast<std::int64_t>(r), token_of(in(op, plan), row));
  }
  void dispatch(const Op& op);
  void combine(const Op& op);
  void combine_dx(const Op& op);
  void cross_entropy(const Op& op);
  void adam(const Op& op);
  void bias_update(const Op& op);
  /// Computes a function that depends on every operand, part by part.
  void opaque(const Op& op);
  const Graph& graph_;
  const Values& given_;
  std::size_t rank_;
  const std::vector<Interpreter>& ranks_;
  std::vector<Tensor> values_;
};

}  // namespace shunt::graph::test
