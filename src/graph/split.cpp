#include "graph/split.hpp"

#include <algorithm>
#include <utility>

#include "core/fail.hpp"

namespace shunt::graph {
namespace {

template <class Visit>
void for_each_dim(const Graph& graph, const Op& op, const Visit& visit) {
  for (const ValueId operand : op.operands)
    for (const DimId dim : graph.type(operand).dims) visit(dim);
  for (const ValueId result : op.results)
    for (const DimId dim : graph.type(result).dims) visit(dim);
}

/// True if the op's rows belong to tokens of the batch. All rows originate from their plan.
bool belong_to_batch(const Graph& graph, const Op& op, DimId rows, DimId batch) {
  const Op* at = &op;
  while (at->kind != OpKind::plan) {
    const Op* source = nullptr;
    for (const ValueId operand : at->operands)
      if (graph.type(operand).has(rows)) source = &graph.op(graph.value(operand).producer);
    if (!source) return false;
    at = source;
  }
  return graph.type(at->results[0]).has(batch);
}

bool is_cut_with(const Graph& graph, const Op& op, DimId dim, DimId batch) {
  return dim == batch || (graph.dims[dim].role == DimRole::rows && belong_to_batch(graph, op, dim, batch));
}

class Splitter {
 public:
  Splitter(const Graph& graph, const std::vector<std::int32_t>& parts)
      : from_(graph),
        parts_(parts),
        batch_(batch_of(graph)),
        made_{Graph(graph.name, graph.ranks), {}, {}},
        is_cut_(graph.dims.dims().size()),
        whole_(graph.values().size()),
        cut_(graph.values().size()),
        views_(graph.values().size()) {
    made_.graph.dims = graph.dims;
    is_cut_[batch_.index()] = true;
    for (const Op& op : graph.ops())
      if (op.kind == OpKind::plan && graph.type(op.results[0]).has(batch_))
        is_cut_[op.attributes.dims("rows")[0].index()] = true;
  }

  SplitGraph run() {
    for (std::size_t i = 0; i < from_.ops().size(); ++i) {
      source_ = OpId(i);
      part_ = 0;
      if (parts_[i] > 1)
        cut(from_.op(source_), parts_[i]);
      else
        copy(from_.op(source_));
    }
    for (const ValueId output : from_.outputs) made_.graph.outputs.push_back(whole(output));
    return std::move(made_);
  }

 private:
  std::vector<ValueId> append(OpKind kind, std::vector<ValueId> operands, Attributes attributes,
                              const std::vector<std::string>& names, const Origin& origin) {
    const OpId op = made_.graph.append(kind, std::move(operands), std::move(attributes), names, origin);
    return note(op);
  }

  std::vector<ValueId> note(OpId op) {
    made_.source.push_back(source_);
    made_.part.push_back(part_);
    return made_.graph.op(op).results;
  }

  /// Appends a part of an op without a type rule.
  std::vector<ValueId> declare(const Op& op, std::vector<ValueId> operands, const std::vector<std::string>& names,
                               std::int32_t part, std::int32_t parts) {
    std::vector<Type> types;
    for (const ValueId result : op.results)
      types.push_back({from_.type(result).element, cut_dims(from_.type(result).dims, part, parts)});
    const OpId made = made_.graph.declare(op.kind, std::move(operands), cut_attributes(op.attributes, part, parts),
                                          names, std::move(types), op.origin);
    return note(made);
  }

  void copy(const Op& op) {
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) operands.push_back(whole(operand));
    const std::vector<ValueId> made = note(made_.graph.adopt(from_, op, std::move(operands)));
    for (std::size_t i = 0; i < op.results.size(); ++i) whole_[op.results[i].index()] = made[i];
  }

  [[nodiscard]] bool is_cut(DimId dim) const { return is_cut_[dim.index()]; }
  [[nodiscard]] bool has_cut_dim(ValueId value) const {
    const auto& dims = from_.type(value).dims;
    return std::any_of(dims.begin(), dims.end(), [&](DimId dim) { return is_cut(dim); });
  }

  ValueId whole(ValueId value) {
    ValueId& known = whole_[value.index()];
    if (known.valid()) return known;
    if (!from_.type(value).has(batch_))
      fail(ErrorCode::invalid_argument, "%{} is cut by rows, so all its users must be cut alike",
           from_.value(value).name);
    const std::int32_t part = std::exchange(part_, 0);
    known = append(OpKind::join, cut_[value.index()], {{"to", std::vector{batch_}}}, {from_.value(value).name},
                   from_.op(from_.value(value).producer).origin)
                .front();
    part_ = part;
    return known;
  }

  ValueId part_of(ValueId value, std::int32_t part, std::int32_t parts) {
    if (!has_cut_dim(value)) return whole(value);
    auto& cut = cut_[value.index()];
    if (static_cast<std::int32_t>(cut.size()) == parts) return cut[static_cast<std::size_t>(part)];
    auto& views = views_[value.index()];
    if (static_cast<std::int32_t>(views.size()) != parts) views.assign(static_cast<std::size_t>(parts), {});
    ValueId& view = views[static_cast<std::size_t>(part)];
    if (view.valid()) return view;
    for (const DimId dim : from_.type(value).dims)
      if (from_.dims[dim].role == DimRole::rows)
        fail(ErrorCode::invalid_argument, "%{} has rows that come from another plan", from_.value(value).name);
    return view =
               append(OpKind::part, {whole(value)}, {{"to", std::vector{made_.graph.dims.part(batch_, part, parts)}}},
                      {part_name(value, part)}, from_.op(from_.value(value).producer).origin)
                   .front();
  }

  [[nodiscard]] std::string part_name(ValueId value, std::int32_t part) const {
    return fmt::format("{}.p{}", from_.value(value).name, part);
  }

  Attributes cut_attributes(const Attributes& all, std::int32_t part, std::int32_t parts) {
    Attributes result = all;
    for (const auto& [name, value] : all.entries()) {
      if (const auto* dims = std::get_if<std::vector<DimId>>(&value)) result.set(name, cut_dims(*dims, part, parts));
    }
    return result;
  }

  std::vector<DimId> cut_dims(std::vector<DimId> dims, std::int32_t part, std::int32_t parts) {
    for (DimId& dim : dims)
      if (is_cut(dim)) dim = made_.graph.dims.part(dim, part, parts);
    return dims;
  }

  void cut(const Op& op, std::int32_t parts) {
    const Split rule = batch_split(from_, op, batch_);
    if (rule == Split::never)
      fail(ErrorCode::invalid_argument, "{} can't be cut along {}", info(op.kind).name, from_.dims[batch_].name);
    std::vector<std::vector<ValueId>> results(op.results.size());  // by result and part
    for (std::int32_t part = 0; part < parts; ++part) {
      part_ = part;
      std::vector<ValueId> operands;
      for (const ValueId operand : op.operands) operands.push_back(part_of(operand, part, parts));
      if (rule == Split::chain && part > 0) {
        operands.resize(1);
        operands.push_back(results[1].back());
      }
      std::vector<std::string> names;
      for (const ValueId result : op.results) names.push_back(part_name(result, part));
      const std::vector<ValueId> made =
          op.kind == OpKind::opaque
              ? declare(op, operands, names, part, parts)
              : append(op.kind, operands, cut_attributes(op.attributes, part, parts), names, op.origin);
      for (std::size_t i = 0; i < made.size(); ++i) results[i].push_back(made[i]);
    }
    part_ = 0;
    for (std::size_t i = 0; i < op.results.size(); ++i) {
      if (has_cut_dim(op.results[i]))
        cut_[op.results[i].index()] = results[i];
      else if (rule == Split::chain)
        whole_[op.results[i].index()] = results[i].back();
      else
        whole_[op.results[i].index()] =
            append(OpKind::add, results[i], {}, {from_.value(op.results[i]).name}, op.origin).front();
    }
  }

  const Graph& from_;
  const std::vector<std::int32_t>& parts_;
  DimId batch_;
  SplitGraph made_;
  OpId source_;
  std::int32_t part_ = 0;
  std::vector<bool> is_cut_;                 // by old dimension: the batch and rows of its plans
  std::vector<ValueId> whole_;               // by old value
  std::vector<std::vector<ValueId>> cut_;    // by old value and part
  std::vector<std::vector<ValueId>> views_;  // by old value and part: views of whole values
};

}  // namespace

SplitGraph split(const Graph& graph, const std::vector<std::int32_t>& parts) { return Splitter(graph, parts).run(); }

std::optional<DimId> find_batch(const Graph& graph) {
  std::optional<DimId> batch;
  for (std::size_t i = 0; i < graph.dims.dims().size(); ++i) {
    const Dim& dim = graph.dims.dims()[i];
    if (dim.role != DimRole::batch || dim.whole.valid()) continue;
    if (batch) return std::nullopt;
    batch = DimId(i);
  }
  return batch;
}

DimId batch_of(const Graph& graph) {
  const std::optional<DimId> batch = find_batch(graph);
  if (!batch) fail(ErrorCode::invalid_argument, "{} has no dimension of role batch, or several", graph.name);
  return *batch;
}

bool is_split(const Graph& graph) {
  const auto dims = graph.dims.dims();
  return std::any_of(dims.begin(), dims.end(),
                     [](const Dim& dim) { return dim.role == DimRole::batch && dim.whole.valid(); });
}

bool touches_rows(const Graph& graph, const Op& op) {
  bool touches = false;
  for_each_dim(graph, op, [&](DimId dim) { touches |= graph.dims[dim].role == DimRole::rows; });
  return touches;
}

std::int64_t most_parts(const Graph& graph) {
  const std::optional<DimId> batch = find_batch(graph);
  if (!batch) return 1;
  std::int64_t most = graph.dims[*batch].size;
  for (const Op& op : graph.ops()) {
    if (!touches_rows(graph, op)) continue;
    if (batch_split(graph, op, *batch) == Split::never) return 1;
    for_each_dim(graph, op, [&](DimId dim) {
      if (is_cut_with(graph, op, dim, *batch)) most = std::min(most, graph.dims[dim].size);
    });
  }
  for (const ValueId output : graph.outputs)
    for (const DimId dim : graph.type(output).dims)
      if (dim != *batch && is_cut_with(graph, graph.op(graph.value(output).producer), dim, *batch)) return 1;
  return most;
}

bool is_cut_by_batch(const Graph& graph, const Op& op, DimId batch) {
  if (lane_of(op) == Lane::none && !info(op.kind).is_view) return false;
  bool touches = false;
  for_each_dim(graph, op, [&](DimId dim) { touches |= is_cut_with(graph, op, dim, batch); });
  return touches && batch_split(graph, op, batch) != Split::never;
}

Split batch_split(const Graph& graph, const Op& op, DimId batch) {
  Split worst = Split::free;
  for_each_dim(graph, op, [&](DimId dim) {
    if (is_cut_with(graph, op, dim, batch)) worst = std::max(worst, split_of(graph, op, dim));
  });
  for (const std::vector<ValueId>* values : {&op.operands, &op.results})
    for (const ValueId value : *values) {
      const auto& dims = graph.type(value).dims;
      const auto cut =
          std::count_if(dims.begin(), dims.end(), [&](DimId dim) { return is_cut_with(graph, op, dim, batch); });
      if (cut > 1 && graph.type(value).element != Element::plan) return Split::never;
    }
  return worst;
}

}  // namespace shunt::graph
