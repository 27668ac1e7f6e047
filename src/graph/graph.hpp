// A training step as a sequence of ops on SSA values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/op_table.hpp"
#include "graph/type.hpp"

namespace shunt::graph {

using OpId = Id<struct OpTag>;
using ValueId = Id<struct ValueTag>;

enum class Phase : std::uint8_t { forward, backward, update };

std::string_view to_string(Phase phase);

/// The part of the model that an op comes from; for reports, and to recognise equal layers.
struct Origin {
  Phase phase = Phase::forward;
  std::int32_t layer = -1;  ///< −1: none
  std::int32_t micro_batch = 0;

  bool operator==(const Origin&) const = default;
};

struct Op {
  OpKind kind = OpKind::opaque;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Attributes attributes;
  Origin origin;
};

struct Value {
  std::string name;  ///< unique in its graph
  Type type;
  OpId producer;
};

/// Ops are in program order: each lane executes its ops in this order, on every rank.
class Graph {
 public:
  Graph(std::string graph_name, std::int32_t num_ranks);

  std::string name;
  std::int32_t ranks;
  DimTable dims;
  std::vector<ValueId> outputs;

  /// Infers the types of the results. A name that is taken gets a number appended. Throws Error(invalid_argument) that
  /// describes what is wrong with operands or attributes.
  OpId append(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<std::string>& names,
              const Origin& origin);
  /// The same for ops without a type rule, whose types are declared.
  OpId declare(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<std::string>& names,
               std::vector<Type> types, const Origin& origin);

  /// Copies an op of another graph with the same dimensions, on these operands, without checking types again.
  OpId adopt(const Graph& from, const Op& op, std::vector<ValueId> operands);

  [[nodiscard]] std::span<const Op> ops() const { return ops_; }
  [[nodiscard]] const Op& op(OpId id) const { return ops_[id.index()]; }
  [[nodiscard]] std::span<const Value> values() const { return values_; }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[id.index()]; }
  [[nodiscard]] const Type& type(ValueId id) const { return values_[id.index()].type; }
  [[nodiscard]] std::optional<ValueId> find(const std::string& value_name) const;
  [[nodiscard]] std::int64_t bytes(ValueId id) const { return bytes_of(dims, type(id)); }

  void set_origin(OpId id, const Origin& origin) { ops_[id.index()].origin = origin; }

  /// The same ops in another order. Values keep their ids.
  [[nodiscard]] Graph reordered(std::span<const OpId> order) const;

  /// Equal graphs, schedule included, have equal hashes on every rank.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  std::string unique_name(const std::string& wanted);

  std::vector<Op> ops_;
  std::vector<Value> values_;
  std::unordered_map<std::string, ValueId> by_name_;
};

/// Provides the OpView of an op for rules; its vectors live as long as this object.
class OpTypes {
 public:
  OpTypes(const Graph& graph, const Op& op);
  [[nodiscard]] OpView view() const { return {graph_.dims, operands_, op_.attributes, results_}; }

 private:
  const Graph& graph_;
  const Op& op_;
  std::vector<Type> operands_, results_;
};

/// By value: a number shared by all values that use the same memory, such as a view and its base. If an op overwrites
/// memory, its result has another number.
[[nodiscard]] std::vector<std::size_t> alias_classes(const Graph& graph);

[[nodiscard]] Work work_of(const Graph& graph, const Op& op);
[[nodiscard]] Split split_of(const Graph& graph, const Op& op, DimId dim);
[[nodiscard]] inline Lane lane_of(const Op& op) { return info(op.kind).lane; }
[[nodiscard]] bool is_all_to_all(const Op& op);
/// True for the all-reduce of a parameter's gradient.
[[nodiscard]] bool reduces_gradient(const Op& op);

}  // namespace shunt::graph
