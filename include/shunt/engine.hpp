// Plans shuffles and carries them out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shunt/dtype.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/rows.hpp"
#include "shunt/tensor.hpp"
#include "shunt/ticket.hpp"
#include "shunt/trace_recorder.hpp"
#include "shunt/world.hpp"

namespace shunt {

/// How combine sums a token's expert outputs; docs/adr/0002 defines both bit for bit.
enum class Reduction : std::uint8_t {
  /// Experts within a rank, ranks within a node, nodes. Depends on the map and the topology.
  tree,
  /// Logical experts in ascending order. Independent of the map; not for `token_unique`.
  flat,
};

/// What travels with each row besides fp8 scales.
struct Companions {
  bool ids = false;
  bool weights = false;
};

struct EngineOptions {
  /// Elements per row, at least 1.
  std::int64_t hidden = 0;
  /// Of dispatched rows.
  DType dtype = bf16;
  /// Of expert outputs and of gradients of rows: f32, bf16 or f16. By default `dtype`, or bf16 for fp8 rows.
  std::optional<DType> expert_dtype = std::nullopt;
  /// Of combine's result and of gradients of tokens: f32, bf16 or f16. By default `expert_dtype`.
  std::optional<DType> result_dtype = std::nullopt;
  /// What sums are rounded to where they cross from node to node: f32, bf16 or f16. By default `expert_dtype`.
  std::optional<DType> wire_dtype = std::nullopt;
  Reduction reduction = Reduction::tree;
  Companions companions = {};
  /// An operation that takes longer fails; by default SHUNT_DEADLINE_MS.
  std::optional<std::chrono::milliseconds> deadline = std::nullopt;
  /// Where the routings of this engine's plans are recorded, by default nowhere. May differ between ranks.
  TraceTarget trace = {};
};

struct DispatchOptions {
  /// [tokens, scales_per_row(hidden)] f32; required when x itself is fp8, forbidden otherwise.
  ConstTensor scales = {};
  /// [plan.num_rows(), hidden] for the rows. Written without a copy where it came from World::allocate and the engine
  /// carries no companions or scales and the layout is not `padded`; through one copy otherwise.
  Tensor out = {};
};

struct CombineOptions {
  /// [tokens, hidden] in the result dtype; any memory.
  Tensor out = {};
};

/// What combine_backward delivers.
struct CombineGradients {
  /// [plan.num_rows(), hidden] in the expert dtype: weight × gradient of the token. Padding of `expert_major`
  /// is zero; unused rows of `padded` hold anything.
  Tensor expert_out;
  /// [tokens, topk] gradient of each routing weight; 0 where dropped. Empty in `token_unique`.
  std::vector<float> weights;
};

/// Light: one per layer is fine. All ranks make their engines in the same order with the same options, and call each
/// engine's operations in the same order; order between engines is free, so ranks that wait for each other in different
/// engines are told so by the deadline only. Operations start at once and proceed without further calls. An
/// Error(invalid_argument) is thrown before anything is sent, and the call may be repeated.
class Engine {
 public:
  struct Impl;

  Engine(const World& world, const EngineOptions& options);

  /// Collective, blocking. The routing is read during the call only.
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options = {});

  /// x: [tokens, hidden] in the row dtype; for fp8 rows also f32, bf16 or f16, quantised on the way. x must stay
  /// unchanged until the ticket is complete.
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options = {});

  /// expert_out: [plan.num_rows(), hidden] in the expert dtype, unchanged until the ticket is complete. Result:
  /// [tokens, hidden], for each token the weighted sum of its rows (unweighted in `token_unique`); zeros for a token
  /// without rows.
  [[nodiscard]] Ticket<Tensor> combine(const Plan& plan, const ConstTensor& expert_out,
                                       const CombineOptions& options = {});

  /// grad_rows: [plan.num_rows(), hidden] in the expert dtype. Result: [tokens, hidden] gradient of x, the unweighted
  /// sum of each token's rows.
  [[nodiscard]] Ticket<Tensor> dispatch_backward(const Plan& plan, const ConstTensor& grad_rows,
                                                 const CombineOptions& options = {});

  /// grad_out: [tokens, hidden] in the result dtype; expert_out: what combine was given.
  [[nodiscard]] Ticket<CombineGradients> combine_backward(const Plan& plan, const ConstTensor& grad_out,
                                                          const ConstTensor& expert_out);

  /// A buffer of [plan.num_rows(), hidden] in the expert dtype that makes combine zero-copy. Not collective.
  [[nodiscard]] Tensor expert_out(const Plan& plan) const;

  [[nodiscard]] const EngineOptions& options() const;

  /// For engines on devices.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
