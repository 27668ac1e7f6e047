#include "graph/graph.hpp"

#include <functional>
#include <numeric>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "graph/text.hpp"

namespace shunt::graph {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::update: return "update";
  }
  return "";
}

Graph::Graph(std::string graph_name, std::int32_t num_ranks) : name(std::move(graph_name)), ranks(num_ranks) {
  if (ranks < 1) fail(ErrorCode::invalid_argument, "graph {}: {} ranks, expected at least 1", name, ranks);
}

std::string Graph::unique_name(const std::string& wanted) {
  std::string unique = wanted;
  for (int number = 2; by_name_.contains(unique); ++number) unique = fmt::format("{}.{}", wanted, number);
  return unique;
}

OpId Graph::append(OpKind kind, std::vector<ValueId> operands, Attributes attributes,
                   const std::vector<std::string>& names, const Origin& origin) {
  const OpInfo& op = info(kind);
  if (!op.types) fail(ErrorCode::invalid_argument, "{}: the types of its results must be declared", op.name);
  const auto count = static_cast<std::int32_t>(operands.size());
  if (count < op.least_operands || count > op.most_operands)
    fail(ErrorCode::invalid_argument, "{}: {} operands, expected {}{}", op.name, count, op.least_operands,
         op.most_operands == op.least_operands ? "" : fmt::format(" to {}", op.most_operands));
  check_attributes(op, attributes);
  std::vector<Type> operand_types;
  for (const ValueId operand : operands) operand_types.push_back(type(operand));
  std::vector<Type> types;
  try {
    types = op.types({dims, operand_types, attributes, {}});
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", op.name, error.what());
  }
  return declare(kind, std::move(operands), std::move(attributes), names, std::move(types), origin);
}

OpId Graph::declare(OpKind kind, std::vector<ValueId> operands, Attributes attributes,
                    const std::vector<std::string>& names, std::vector<Type> types, const Origin& origin) {
  check_attributes(info(kind), attributes);
  if (names.size() != types.size())
    fail(ErrorCode::invalid_argument, "{}: {} names for {} results", info(kind).name, names.size(), types.size());
  const OpId id(ops_.size());
  Op op{kind, std::move(operands), {}, std::move(attributes), origin};
  for (std::size_t i = 0; i < types.size(); ++i) {
    types[i].dims = dims.ordered(std::move(types[i].dims));
    (void)dims.count(types[i].dims);
    const ValueId result(values_.size());
    values_.push_back({unique_name(names[i]), std::move(types[i]), id});
    by_name_.emplace(values_.back().name, result);
    op.results.push_back(result);
  }
  ops_.push_back(std::move(op));
  return id;
}

OpId Graph::adopt(const Graph& from, const Op& op, std::vector<ValueId> operands) {
  std::vector<std::string> names;
  std::vector<Type> types;
  for (const ValueId result : op.results) {
    names.push_back(from.value(result).name);
    types.push_back(from.type(result));
  }
  return declare(op.kind, std::move(operands), op.attributes, names, std::move(types), op.origin);
}

std::optional<ValueId> Graph::find(const std::string& value_name) const {
  const auto found = by_name_.find(value_name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

Graph Graph::reordered(std::span<const OpId> order) const {
  SHUNT_CHECK(order.size() == ops_.size());
  Graph result = *this;
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.ops_[i] = op(order[i]);
    for (const ValueId value : result.ops_[i].results) result.values_[value.index()].producer = OpId(i);
  }
  return result;
}

std::uint64_t Graph::hash() const {
  Hasher hasher;
  for (const char c : print(*this)) hasher.add(static_cast<unsigned char>(c));
  return hasher.value();
}

OpTypes::OpTypes(const Graph& graph, const Op& op) : graph_(graph), op_(op) {
  for (const ValueId operand : op.operands) operands_.push_back(graph.type(operand));
  for (const ValueId result : op.results) results_.push_back(graph.type(result));
}

Work work_of(const Graph& graph, const Op& op) {
  const WorkRule rule = info(op.kind).work;
  return rule ? rule(OpTypes(graph, op).view()) : Work{};
}

Split split_of(const Graph& graph, const Op& op, DimId dim) {
  return info(op.kind).split(OpTypes(graph, op).view(), dim);
}

bool is_all_to_all(const Op& op) {
  return op.kind == OpKind::dispatch || op.kind == OpKind::combine || op.kind == OpKind::combine_dx;
}

std::vector<std::size_t> alias_classes(const Graph& graph) {
  std::vector<std::size_t> parent(graph.values().size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto find = [&](std::size_t value) {
    while (parent[value] != value) value = parent[value] = parent[parent[value]];
    return value;
  };
  for (const Op& op : graph.ops())
    if (info(op.kind).is_view && info(op.kind).writes == 0)
      for (const ValueId operand : op.operands)
        for (const ValueId result : op.results) parent[find(result.index())] = find(operand.index());
  for (std::size_t value = 0; value < parent.size(); ++value) parent[value] = find(value);
  return parent;
}

bool reduces_gradient(const Op& op) { return op.kind == OpKind::all_reduce && op.origin.phase == Phase::backward; }

}  // namespace shunt::graph
