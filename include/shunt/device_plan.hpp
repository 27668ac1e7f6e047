// A plan that was made on a device and lives there.
#pragma once

#include <cstdint>
#include <memory>

#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// What the router decided, in device memory. Read when the plan's turn on the stream comes.
struct DeviceRouting {
  /// [tokens, topk] logical experts; −1 = dropped. A token names an expert at most once.
  const std::int32_t* experts = nullptr;
  /// [tokens, topk]; null: all ones.
  const float* weights = nullptr;
  std::int64_t num_tokens = 0;
  /// 1 to Routing::kMaxTopK.
  std::int32_t topk = 1;
};

/// What happens when a rank would receive more rows than the plan's bound.
enum class Overflow : std::uint8_t {
  fault,  ///< the engine fails with Error(invalid_argument) on all ranks
  /// `expert_major` only: rows whose slot is beyond the bound are dropped, as if routed to −1: of the last experts, the
  /// last source ranks' last tokens. Weights are not renormalised.
  drop,
};

struct DevicePlanOptions {
  /// expert_major or token_unique.
  Layout layout = Layout::expert_major;
  /// As in PlanOptions.
  std::int32_t alignment = 1;
  /// As in PlanOptions; in `token_unique` counts are exchanged twice then.
  std::int64_t capacity = PlanOptions::kUnlimited;
  /// 0: exact; sizes are read back, for which the host waits once. Else no rank receives more rows than this, sizes
  /// stay on the device, and a CUDA graph can hold the plan and be replayed with other routings in the same memory.
  std::int64_t max_rows = 0;
  Overflow overflow = Overflow::fault;
  /// [max_rows, hidden] in the row dtype, from DeviceHeap::allocate: where dispatch with this plan leaves its rows. All
  /// ranks give it or none, and the plan keeps it. In a CUDA graph, a dispatch that is captured next to the plan, with
  /// no other operation of the engine between, then waits for the other ranks once instead of twice; so whatever used
  /// the rows before comes before the plan: on the engine's stream, or on the one that plan() is given. All ranks
  /// capture the two alike.
  Tensor rows = {};
  /// With fp8 rows, else forbidden: [max_rows, scales_per_row(hidden)] f32 for their scales, as `rows`.
  Tensor row_scales = {};
};

struct DevicePlanData;

/// A cheap handle; copies share one plan. Made by DeviceEngine::plan, valid with that engine alone. Pointers are device
/// pointers, valid as long as the plan, filled when the plan's turn on the stream has come.
class DevicePlan {
 public:
  DevicePlan() = default;
  explicit DevicePlan(std::shared_ptr<const DevicePlanData> data) : data_(std::move(data)) {}

  [[nodiscard]] Layout layout() const;
  [[nodiscard]] std::int64_t num_tokens() const;
  [[nodiscard]] std::int32_t topk() const;
  [[nodiscard]] std::int32_t num_local_experts() const;

  /// Rows of this rank's outputs: what it receives, padding included, or the bound if there is one.
  [[nodiscard]] std::int64_t num_rows() const;

  /// [local experts + 1]: first expert-major row of each local expert; the last is where they all end.
  [[nodiscard]] const std::int32_t* expert_offsets() const;
  /// [local experts]: rows of each, without padding.
  [[nodiscard]] const std::int32_t* expert_counts() const;

  // `token_unique`; as in Plan. Null otherwise.
  [[nodiscard]] const std::int32_t* unique_of_expert_row() const;
  [[nodiscard]] const std::int32_t* expert_rows_of_unique() const;
  [[nodiscard]] const std::int32_t* unique_experts() const;
  [[nodiscard]] const float* unique_weights() const;

  /// What the plan came to. The host waits for the engine's stream, so not while it is captured:
  /// Error(invalid_argument).
  struct Sizes {
    std::int64_t num_rows;         ///< of this rank, padding included
    std::int64_t num_expert_rows;  ///< in expert-major order, padding included
    bool overflowed;               ///< some rank had more than the bound
  };
  [[nodiscard]] Sizes sizes() const;

  /// For the engine.
  [[nodiscard]] const std::shared_ptr<const DevicePlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const DevicePlanData> data_;
};

}  // namespace shunt
