// Everything a shuffle needs, complete and immutable once made.
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
  /// One row per (token, local expert); experts contiguous, ascending; within an expert by source rank, then token.
  expert_major,
  /// One row per (token, rank), by source rank, then token, plus index maps to and from expert-major rows. The layer
  /// applies the weights.
  token_unique,
  /// [local experts, ranks × max_tokens, hidden]: row i of source r for an expert stands at r × max_tokens + i. Nothing
  /// is exchanged before sending. Rows beyond a source's count are left as they were. For few tokens; on devices see
  /// Engine.
  padded,
};

std::string_view to_string(Layout layout);
Layout parse_layout(std::string_view name);

/// Who takes rows in for a far node and hands them out there. Moves load between links, never changes a result.
enum class Forwarders : std::uint8_t {
  balanced,  ///< a node's NICs take in equally much, whatever the routing
  rotated,   ///< FUSCO's rotation, to compare with: each node's ranks sorted by what they send, rotated by the node
};

std::string_view to_string(Forwarders forwarders);

/// What happens when a rank would receive more rows than the plan's bound.
enum class Overflow : std::uint8_t {
  fault,  ///< Error(invalid_argument) on all ranks
  /// `expert_major` only: rows whose slot is beyond the bound are dropped, as if routed to −1: of the last experts, the
  /// last source ranks' last tokens. Weights are not renormalised.
  drop,
};

/// What a kind of engine can't do is Error(unsupported); docs/errors.md has the table.
struct PlanOptions {
  Layout layout = Layout::expert_major;
  /// Each expert's block of expert-major rows starts, and the last one ends, at a multiple of this many rows; the gap
  /// is zero-filled. In `padded` it divides ranks × max_tokens.
  std::int32_t alignment = 1;
  /// Most rows a physical expert accepts. What exceeds it is dropped, as if routed to −1: later source ranks lose
  /// first, and within a source later tokens. Weights are not renormalised. Not for `padded`.
  std::int64_t capacity = kUnlimited;
  /// `padded` only: the most tokens any rank brings; the same on every rank.
  std::int64_t max_tokens = 0;
  /// `padded` only: each expert's rows stand at the front of its block, by source, then token, in one run, at the price
  /// of one more copy. Expert outputs are read there, too. A combine with a plan comes after a dispatch with it.
  bool packed = false;
  /// Multi-node worlds only. `padded` always spreads rows evenly.
  Forwarders forwarders = Forwarders::balanced;

  // For engines on a device.

  /// A bound: no rank receives more rows than this. Sizes stay on the device, the host does not wait, and a CUDA graph
  /// can hold the plan and be replayed with other routings in the same memory. 0: exact; the host waits for the sizes.
  std::int64_t max_rows = 0;
  Overflow overflow = Overflow::fault;
  /// [max_rows, hidden] in the row dtype, from Engine::allocate: where dispatch with this plan writes its rows. All
  /// ranks give it or none, and the plan keeps it. In a CUDA graph, a dispatch that is captured next to the plan, with
  /// no other operation of the engine between, then has one barrier instead of two; so whatever used the rows before
  /// comes before the plan: on the engine's stream, or on `stream`. All ranks capture the two alike.
  Tensor rows = {};
  /// With fp8 rows, else forbidden: [max_rows, scales_per_row(hidden)] f32 for their scales, as `rows`.
  Tensor row_scales = {};
  /// The routing is complete when what was put on this stream before is done; null: on the engine's stream alone.
  Stream stream = nullptr;

  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
};

/// The arrays of a plan that its experts need. Views, valid as long as the plan.
struct PlanArrays {
  /// [local experts + 1]: first expert-major row of each local expert; the last is where they all end.
  std::span<const std::int32_t> expert_offsets = {};
  /// [local experts]: rows of each local expert without padding. Empty for `padded`, whose counts arrive with the rows.
  std::span<const std::int32_t> expert_counts = {};
  /// [1]: rows of dispatch's output, padding included: of a bounded plan those that came. Empty for `padded`.
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

/// What a plan came to, in host memory.
struct PlanContents {
  std::int64_t num_rows = 0;         ///< of this rank, padding included
  std::int64_t num_expert_rows = 0;  ///< in expert-major order, padding included
  bool overflowed = false;           ///< some rank had more than the bound
  // As in PlanArrays; those of `token_unique` have num_expert_rows or num_rows × topk entries.
  std::vector<std::int32_t> expert_offsets = {};
  std::vector<std::int32_t> expert_counts = {};
  std::vector<std::int32_t> unique_of_expert_row = {};
  std::vector<std::int32_t> expert_rows_of_unique = {};
  std::vector<std::int32_t> unique_experts = {};
  std::vector<float> unique_weights = {};
};

struct PlanData;

/// A cheap handle; copies share one plan. Made by Engine::plan, valid with that engine alone.
class Plan {
 public:
  Plan() = default;
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}

  [[nodiscard]] Layout layout() const;
  /// Tokens this rank brought.
  [[nodiscard]] std::int64_t num_tokens() const;
  [[nodiscard]] std::int32_t topk() const;

  [[nodiscard]] std::int32_t num_local_experts() const;

  /// Rows of this rank's dispatch output, padding included; of a bounded plan the bound.
  [[nodiscard]] std::int64_t num_rows() const;
  /// Rows in expert-major order on this rank, padding included; equal to num_rows() except in `token_unique`. Of a
  /// bounded plan the most there can be.
  [[nodiscard]] std::int64_t num_expert_rows() const;

  // As in PlanArrays, in host memory: of plans that the host has made. Of one that was made on a device they are
  // Error(unsupported): read() copies them.
  [[nodiscard]] std::span<const std::int32_t> expert_offsets() const;
  [[nodiscard]] std::span<const std::int32_t> expert_counts() const;
  [[nodiscard]] std::span<const std::int32_t> unique_of_expert_row() const;
  [[nodiscard]] std::span<const std::int32_t> expert_rows_of_unique() const;
  [[nodiscard]] std::span<const std::int32_t> unique_experts() const;
  [[nodiscard]] std::span<const float> unique_weights() const;

  /// The same arrays in device memory, filled when the plan's turn on the stream has come; those of a bounded plan have
  /// the lengths of the bound. Error(unsupported) for engines on host memory.
  [[nodiscard]] PlanArrays device() const;

  /// The host waits until the plan is complete, and copies what it came to. On a device not while its stream is
  /// captured: Error(invalid_argument). Throws the Error that ended the plan.
  [[nodiscard]] PlanContents read() const;

  /// Entries of this rank's routing that the capacity limit dropped. Not of plans that were made on a device:
  /// Error(unsupported).
  [[nodiscard]] std::int64_t num_dropped() const;
  /// All ranks' traffic for rows of row_bytes; not for `padded`, where no rank knows the others' counts, nor of plans
  /// that were made on a device: Error(unsupported).
  [[nodiscard]] Traffic traffic(std::size_t row_bytes) const;

  /// Equal on all ranks of one collective plan call.
  [[nodiscard]] std::uint64_t hash() const;

  /// For the engine.
  [[nodiscard]] const std::shared_ptr<const PlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const PlanData> data_;
};

}  // namespace shunt
