// Reverse-mode differentiation on the graph: gradients are further ops.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// The interface of gradient rules to the backward pass.
class Backward {
 public:
  explicit Backward(Graph& graph);

  Graph& graph;

  /// The gradient of an op's result, after all its users have been differentiated; none if no user contributed.
  std::optional<ValueId> gradient(ValueId value);
  /// True if a gradient of this value leads to a parameter.
  [[nodiscard]] bool is_wanted(ValueId value) const { return wanted_[value.index()]; }
  void contribute(ValueId value, ValueId gradient) { contributions_[value.index()].push_back(gradient); }
  /// Appends an op to the backward pass; its result is named "d.<of>".
  ValueId emit(OpKind kind, std::vector<ValueId> operands, Attributes attributes, ValueId of);
  OpId emit_several(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::vector<ValueId>& of);
  /// Sums the gradient over the dimensions along which the value was broadcast, and contributes the sum.
  void contribute_summed(ValueId value, ValueId gradient);

  void differentiate(ValueId loss);

 private:
  [[nodiscard]] std::string name_for(ValueId of) const { return "d." + graph.value(of).name; }

  std::vector<bool> wanted_;
  std::vector<std::vector<ValueId>> contributions_;  // by forward value
  Origin origin_;
};

/// Appends the gradients of `loss`; dX and dW are separate ops, dX first. Returns, for each parameter that the loss
/// depends on, its gradient on this rank.
std::vector<std::pair<ValueId, ValueId>> append_backward(Graph& graph, ValueId loss);

struct Optimizer {
  enum class Kind : std::uint8_t { sgd, adam } kind = Kind::adam;
  double rate = 1e-4;
};

/// Appends, for each parameter, its update, preceded by the all-reduce of its gradient if it is replicated over ranks.
void append_updates(Graph& graph, const std::vector<std::pair<ValueId, ValueId>>& gradients,
                    const Optimizer& optimizer);

/// Selects the ops of the backward pass that compute gradients of parameters and whose only users are updates: they may
/// be moved behind any later communication.
[[nodiscard]] std::vector<bool> weight_gradients(const Graph& graph);

}  // namespace shunt::graph
