// Reverse-mode differentiation on the graph itself: a gradient is more ops.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// What gradient rules write to.
class Backward {
 public:
  explicit Backward(Graph& graph);

  Graph& graph;

  /// The gradient of a result of an op whose users have all been differentiated; nothing if none arrived.
  std::optional<ValueId> gradient(ValueId value);
  /// Whether a gradient of this value leads to a parameter.
  [[nodiscard]] bool is_wanted(ValueId value) const { return wanted_[value.index()]; }
  void contribute(ValueId value, ValueId gradient) { contributions_[value.index()].push_back(gradient); }
  /// Appends to the backward pass; `of` names the result "d.<of>".
  ValueId emit(OpKind kind, std::vector<ValueId> operands, Attributes attributes, ValueId of);
  OpId emit_several(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<ValueId>& of);
  /// Sums over the dimensions that a value was broadcast along, and contributes.
  void contribute_summed(ValueId value, ValueId gradient);

  void differentiate(ValueId loss);

 private:
  [[nodiscard]] std::string name_for(ValueId of) const { return "d." + graph.value(of).name; }

  std::vector<bool> wanted_;
  std::vector<std::vector<ValueId>> contributions_;  // by forward value
  Origin origin_;
};

/// Appends the gradients of `loss`; dX and dW are separate ops, dX first. Result: for each parameter that the loss
/// depends on, its gradient on this rank.
std::vector<std::pair<ValueId, ValueId>> append_backward(Graph& graph, ValueId loss);

struct Optimizer {
  enum class Kind : std::uint8_t { sgd, adam } kind = Kind::adam;
  double rate = 1e-4;
};

/// Appends, for each parameter, the all-reduce of its gradient where it is replicated over ranks, and its update.
void append_updates(Graph& graph, const std::vector<std::pair<ValueId, ValueId>>& gradients,
                    const Optimizer& optimizer);

/// Ops of the backward pass that make gradients of parameters and that only updates wait for: they may be moved behind
/// any later communication.
[[nodiscard]] std::vector<bool> weight_gradients(const Graph& graph);

}  // namespace shunt::graph
