// A plan: the complete, immutable description of a shuffle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "shunt/ids.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"
#include "shunt/traffic.hpp"

namespace shunt {

enum class Layout : std::uint8_t {
  /// One row per (token, local expert). Experts are contiguous and ascending; within an expert, rows are ordered by
  /// source rank, then token.
  expert_major,
  /// One row per (token, rank), ordered by source rank, then token, plus index maps to and from expert-major rows. The
  /// layer applies the weights.
  token_unique,
  /// [local experts, ranks × max_tokens, hidden]: row i from source r for an expert is at r × max_tokens + i of its
  /// block. Nothing is exchanged before sending. Rows beyond a source's count keep their previous contents. For few
  /// tokens; see Engine for devices.
  padded,
};

std::string_view to_string(Layout layout);
Layout parse_layout(std::string_view name);

/// How forwarders are chosen: the ranks that receive rows from far nodes and distribute them within their node. Affects
/// the load of links, never a result.
enum class Forwarders : std::uint8_t {
  balanced,  ///< a node's NICs receive equally much, whatever the routing
  rotated,   ///< FUSCO's rotation, for comparison: each node's ranks sorted by what they send, rotated by the node
};

std::string_view to_string(Forwarders forwarders);

/// What happens when a rank would receive more rows than the plan's bound.
enum class Overflow : std::uint8_t {
  fault,  ///< Error(invalid_argument) on all ranks
  /// `expert_major` only: rows whose slot is beyond the bound are dropped, as if routed to −1. That affects the last
  /// experts first, in them the last source ranks, and in these the last tokens. Weights are not renormalised.
  drop,
};

/// Options that a kind of engine does not support are Error(unsupported); docs/errors.md has the table.
struct PlanOptions {
  Layout layout = Layout::expert_major;
  /// Each expert's block of expert-major rows starts at a multiple of this many rows, and the last one ends at one;
  /// gaps are zero-filled. In `padded` it must divide ranks × max_tokens.
  std::int32_t alignment = 1;
  /// Upper bound on the rows of a physical expert. Rows beyond it are dropped, as if routed to −1: first those of later
  /// source ranks and, within a source, of later tokens. Weights are not renormalised. Not for `padded`.
  std::int64_t capacity = kUnlimited;
  /// `padded` only: upper bound on the tokens of a rank; the same on every rank.
  std::int64_t max_tokens = 0;
  /// `padded` only: each expert's rows are contiguous at the start of its block, by source, then token, at the price of
  /// one more copy. Expert outputs are read from the same places. A combine requires a preceding dispatch with the same
  /// plan.
  bool packed = false;
  /// Multi-node worlds only. `padded` always spreads rows evenly.
  Forwarders forwarders = Forwarders::balanced;

  // For engines on devices.

  /// A bound: no rank receives more rows than this. Sizes stay on the device, the host does not wait, and a CUDA graph
  /// can hold the plan and be replayed with other routings in the same memory. 0: exact; the host waits for the sizes.
  std::int64_t max_rows = 0;
  Overflow overflow = Overflow::fault;
  /// [max_rows, hidden] in the row dtype, from Engine::allocate: the output of every dispatch with this plan, which
  /// keeps the tensor. All ranks set it, or none.
  ///
  /// In a CUDA graph, if the dispatch is captured right after the plan, with no other operation of the engine between
  /// them, the two need one barrier instead of two. Earlier uses of the rows must then precede the plan, on the
  /// engine's stream or on `stream`. All ranks capture the two alike.
  Tensor rows = {};
  /// [max_rows, scales_per_row(hidden)] f32: the scales of fp8 rows, under the same rules as `rows`. Forbidden for
  /// other rows.
  Tensor row_scales = {};
  /// The routing is complete after the work already on this stream; null: after the work on the engine's stream.
  Stream stream = nullptr;

  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
};

/// Index arrays of a plan for the computation of its experts. Views, valid as long as the plan.
struct PlanArrays {
  /// [local experts + 1]: first expert-major row of each local expert; the last entry is the end of them all.
  std::span<const std::int32_t> expert_offsets = {};
  /// [local experts]: rows of each local expert without padding. Empty for `padded`, whose counts arrive with the rows.
  std::span<const std::int32_t> expert_counts = {};
  /// [1]: rows of dispatch's output, padding included; in a bounded plan the number received. Empty for `padded`.
  std::span<const std::int32_t> row_count = {};

  // `token_unique` only, else empty.
  /// [num_expert_rows]: the unique row that an expert-major row copies; −1 for padding.
  std::span<const std::int32_t> unique_of_expert_row = {};
  /// [num_rows, topk]: the expert-major rows of a unique row, by ascending expert; −1 fills the tail.
  std::span<const std::int32_t> expert_rows_of_unique = {};
  /// [num_rows, topk]: local expert (0 = this rank's first) of each of those rows; −1 fills the tail.
  std::span<const std::int32_t> unique_experts = {};
  /// [num_rows, topk]: routing weight of each of those rows; 0 fills the tail.
  std::span<const float> unique_weights = {};
};

/// The sizes and arrays of a completed plan, in host memory.
struct PlanContents {
  std::int64_t num_rows = 0;         ///< rows of this rank, padding included
  std::int64_t num_expert_rows = 0;  ///< rows in expert-major order, padding included
  bool overflowed = false;           ///< some rank had more rows than the bound
  // As in PlanArrays; those of `token_unique` have num_expert_rows or num_rows × topk entries.
  std::vector<std::int32_t> expert_offsets = {};
  std::vector<std::int32_t> expert_counts = {};
  std::vector<std::int32_t> unique_of_expert_row = {};
  std::vector<std::int32_t> expert_rows_of_unique = {};
  std::vector<std::int32_t> unique_experts = {};
  std::vector<float> unique_weights = {};
};

struct PlanData;

/// A cheap handle; copies share one plan. Made by Engine::plan, and valid with that engine only.
class Plan {
 public:
  Plan() = default;
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}

  [[nodiscard]] Layout layout() const;
  /// Tokens of this rank.
  [[nodiscard]] std::int64_t num_tokens() const;
  [[nodiscard]] std::int32_t topk() const;

  [[nodiscard]] std::int32_t num_local_experts() const;

  /// Rows of this rank's dispatch output, padding included; for a bounded plan, the bound.
  [[nodiscard]] std::int64_t num_rows() const;
  /// Rows in expert-major order on this rank, padding included; equal to num_rows() except in `token_unique`. For a
  /// bounded plan, their upper bound.
  [[nodiscard]] std::int64_t num_expert_rows() const;

  // The arrays of PlanArrays, in host memory. Plans that were made on a device throw Error(unsupported); read() copies
  // their arrays.
  [[nodiscard]] std::span<const std::int32_t> expert_offsets() const;
  [[nodiscard]] std::span<const std::int32_t> expert_counts() const;
  [[nodiscard]] std::span<const std::int32_t> unique_of_expert_row() const;
  [[nodiscard]] std::span<const std::int32_t> expert_rows_of_unique() const;
  [[nodiscard]] std::span<const std::int32_t> unique_experts() const;
  [[nodiscard]] std::span<const float> unique_weights() const;

  /// The same arrays in device memory, filled when the stream has executed the plan. Those of a bounded plan have the
  /// lengths of the bound. Error(unsupported) for engines on host memory.
  [[nodiscard]] PlanArrays device() const;

  /// Waits on the host until the plan is complete, and copies its sizes and arrays. Throws the Error that ended the
  /// plan, and Error(invalid_argument) while the engine's stream is being captured.
  [[nodiscard]] PlanContents read() const;

  /// Entries of this rank's routing that the capacity limit dropped. Error(unsupported) for plans that were made on a
  /// device.
  [[nodiscard]] std::int64_t num_dropped() const;
  /// The traffic of all ranks, for rows of row_bytes. Error(unsupported) for `padded`, where no rank has the others'
  /// counts, and for plans that were made on a device.
  [[nodiscard]] Traffic traffic(std::size_t row_bytes) const;

  /// Equal on all ranks for one collective call of Engine::plan.
  [[nodiscard]] std::uint64_t hash() const;

  /// For the engine.
  [[nodiscard]] const std::shared_ptr<const PlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const PlanData> data_;
};

}  // namespace shunt
