#include "graph/verify.hpp"

#include <algorithm>
#include <set>

#include "core/fail.hpp"
#include "graph/text.hpp"

namespace shunt::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        known_(graph.values().size()),
        alias_class_(alias_classes(graph)),
        lives_on_(known_.size()),
        overwritten_by_(known_.size()) {}

  void run() {
    for (std::size_t i = 0; i < graph_.ops().size(); ++i) check(OpId(i));
    for (const ValueId output : graph_.outputs) check_defined(output, "return");
  }

 private:
  void check(OpId id) {
    const Op& op = graph_.op(id);
    const OpInfo& kind = info(op.kind);
    for (const ValueId operand : op.operands) check_defined(operand, kind.name);
    check_types(op);
    if (op.kind == OpKind::plan) check_plan(op);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (kind.overwrites(i)) overwrite(op, op.operands[i]);
    for (const ValueId result : op.results) {
      check_rows(op, result);
      if (graph_.value(result).producer != id || known_[result.index()])
        fail(ErrorCode::invalid_argument, "%{} is defined twice", graph_.value(result).name);
      known_[result.index()] = true;
      if (op.kind == OpKind::param || op.kind == OpKind::state || op.kind == OpKind::constant)
        lives_on_[alias_class_[result.index()]] = true;
    }
  }

  void check_defined(ValueId value, std::string_view user) const {
    if (!known_[value.index()])
      fail(ErrorCode::invalid_argument, "{} uses %{} before its definition", user, graph_.value(value).name);
    if (const OpInfo* writer = overwritten_by_[alias_class_[value.index()]])
      fail(ErrorCode::invalid_argument, "{} reads %{}, which {} has overwritten", user, graph_.value(value).name,
           writer->kind == OpKind::all_reduce ? "an all_reduce" : "an update");
  }

  void check_types(const Op& op) const {
    const OpInfo& kind = info(op.kind);
    check_attributes(kind, op.attributes);
    if (!kind.types) return;
    const OpTypes types(graph_, op);
    OpView view = types.view();
    const std::span<const Type> given = view.results;
    view.results = {};
    const std::vector<Type> inferred = kind.types(view);
    for (std::size_t i = 0; i < given.size(); ++i)
      if (inferred.size() != given.size() || inferred[i] != given[i])
        fail(ErrorCode::invalid_argument, "%{} is {}, but {} gives {}", graph_.value(op.results[i]).name,
             print(graph_.dims, given[i]), kind.name, print(graph_.dims, inferred[i]));
  }

  /// Row counts are determined by a plan only.
  void check_rows(const Op& op, ValueId result) const {
    for (const DimId dim : graph_.type(result).dims) {
      const auto brings = [&](ValueId operand) { return graph_.type(operand).has(dim); };
      if (graph_.dims[dim].role == DimRole::rows && op.kind != OpKind::plan &&
          std::none_of(op.operands.begin(), op.operands.end(), brings))
        fail(ErrorCode::invalid_argument, "%{} has rows {}, which no operand of {} brings", graph_.value(result).name,
             graph_.dims[dim].name, info(op.kind).name);
    }
  }

  /// Checks that rows belong to the plan that made their dimension, and that experts match it by number.
  void check_plan(const Op& op) {
    const DimId rows = op.attributes.dims("rows")[0], experts = op.attributes.dims("expert")[0];
    if (!planned_.insert(rows).second)
      fail(ErrorCode::invalid_argument, "{} are the rows of two plans", graph_.dims[rows].name);
    const std::int64_t here = graph_.dims[graph_.dims[rows].groups].size;
    const std::int64_t all = graph_.dims[experts].size;
    if (all % graph_.ranks != 0 || all / graph_.ranks != here)
      fail(ErrorCode::invalid_argument, "{} experts, but {} on each of {} ranks", all, here, graph_.ranks);
  }

  /// Updates overwrite the initial state of the next step; an all-reduce overwrites values of this step.
  void overwrite(const Op& op, ValueId value) {
    const OpKind source = graph_.op(graph_.value(value).producer).kind;
    if (op.kind == OpKind::all_reduce) {
      if (lives_on_[alias_class_[value.index()]])
        fail(ErrorCode::invalid_argument, "all_reduce overwrites %{}, which the next step needs",
             graph_.value(value).name);
    } else if (source != OpKind::param && source != OpKind::state) {
      fail(ErrorCode::invalid_argument, "{} overwrites %{}, which is neither a parameter nor a state",
           info(op.kind).name, graph_.value(value).name);
    }
    overwritten_by_[alias_class_[value.index()]] = &info(op.kind);
  }

  const Graph& graph_;
  std::vector<bool> known_;
  std::vector<std::size_t> alias_class_;
  std::vector<bool> lives_on_;                 // by alias class: exists before and after the step
  std::vector<const OpInfo*> overwritten_by_;  // by alias class; null: not overwritten
  std::set<DimId> planned_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace shunt::graph
