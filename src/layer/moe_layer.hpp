// A whole Mixture-of-Experts layer in three implementations: plan, dispatch, experts, combine.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "layer/conventional_exchange.hpp"
#include "layer/experts.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt {

enum class LayerWay : std::uint8_t {
  conventional,  ///< permutes around an all-to-all of one row per (token, expert), over shunt's transport
  expert_major,  ///< shunt's shuffle into expert-major rows; combine applies the weights
  token_unique,  ///< shunt's shuffle of one row per (token, rank); the experts gather, weight and sum
};

std::string_view to_string(LayerWay way);
/// Throws Error(invalid_argument) that lists the names.
LayerWay parse_layer_way(std::string_view name);

/// One rank's part of the layer; one thread at a time. Calls are collective and blocking, in this order; after plan(),
/// the other three may be repeated. Results are valid until the next call of the same function.
class MoeLayer {
 public:
  virtual ~MoeLayer() = default;

  /// The map must give this rank as many experts as it has weights for, in the same order; throws
  /// Error(invalid_argument) otherwise. The routing is read during the call only.
  virtual void plan(const Routing& routing, const ExpertMap& map) = 0;
  /// x: [tokens, hidden] in the weights' dtype.
  virtual void dispatch(const ConstTensor& x) = 0;
  virtual void experts() = 0;
  /// [tokens, hidden] in the weights' dtype; zeros for a token without experts.
  virtual ConstTensor combine() = 0;

  /// Calls all four.
  ConstTensor run(const Routing& routing, const ExpertMap& map, const ConstTensor& x) {
    plan(routing, map);
    dispatch(x);
    experts();
    return combine();
  }

  /// After plan(): rows that this rank receives, and rows in its products, one per (token, expert).
  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  [[nodiscard]] virtual std::int64_t num_expert_rows() const = 0;
  /// After plan(): for one dispatch, over all ranks.
  [[nodiscard]] virtual SentBytes sent_bytes() const = 0;
  /// After experts(): memory besides rows and outputs.
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
};

/// Collective. weights: those of this rank's experts; the matrices must outlive the layer.
std::unique_ptr<MoeLayer> make_moe_layer(World& world, LayerWay way, ExpertWeights weights,
                                         const ExpertsOptions& options = {});

}  // namespace shunt
