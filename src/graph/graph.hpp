// A training step as a sequence of ops on SSA values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/attributes.hpp"
#include "graph/op_table.hpp"
#include "graph/type.hpp"

namespace shunt::graph {

using OpId = Id<struct OpTag>;
using ValueId = Id<struct ValueTag>;

enum class Phase : std::uint8_t { forward, backward, update };

std::string_view to_string(Phase phase);

/// Where in the model an op comes from; for reports, and so that equal layers are treated alike.
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

/// Ops stand in program order: what a lane executes, it executes in this order, on every rank.
class Graph {
 public:
  Graph(std::string graph_name, std::int32_t num_ranks);

  std::string name;
  std::int32_t ranks;
  DimTable dims;
  std::vector<ValueId> outputs;

  /// Infers the types of the results. A name that is taken gets a number. Throws Error(invalid_argument) that says what
  /// is wrong with operands or attributes.
  OpId append(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<std::string>& names,
              const Origin& origin);
  /// The same where the table has no rule and types are declared.
  OpId declare(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<std::string>& names,
               std::vector<Type> types, const Origin& origin);

  /// An op of another graph with the same dimensions, whose types need no second look, on these operands.
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

/// Rules look at an op through this; the vectors live as long as it does.
class OpTypes {
 public:
  OpTypes(const Graph& graph, const Op& op);
  [[nodiscard]] OpView view() const { return {graph_.dims, operands_, op_.attributes, results_}; }

 private:
  const Graph& graph_;
  const Op& op_;
  std::vector<Type> operands_, results_;
};

/// By value, a number that all values have which show the same memory: a view and what it is a view of. What an op
/// leaves in memory that it overwrites has another number.
[[nodiscard]] std::vector<std::size_t> alias_classes(const Graph& graph);

[[nodiscard]] Work work_of(const Graph& graph, const Op& op);
[[nodiscard]] Split split_of(const Graph& graph, const Op& op, DimId dim);
[[nodiscard]] inline Lane lane_of(const Op& op) { return info(op.kind).lane; }
[[nodiscard]] bool is_all_to_all(const Op& op);
/// Whether it is the all-reduce of a parameter's gradient.
[[nodiscard]] bool reduces_gradient(const Op& op);

}  // namespace shunt::graph
