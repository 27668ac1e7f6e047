// Everything a shuffle needs, complete and immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "shunt/ids.hpp"
#include "shunt/traffic.hpp"

namespace shunt {

enum class Layout : std::uint8_t {
  /// One row per (token, local expert); experts contiguous, ascending; within an expert by source rank, then token.
  expert_major,
  /// One row per (token, rank), by source rank, then token, plus index maps to and from expert-major rows. The layer
  /// applies the weights.
  token_unique,
  /// [local experts, ranks × max_tokens, hidden]: row i of source r for an expert stands at r × max_tokens + i. Nothing
  /// is exchanged before sending. Rows beyond a source's count are left as they were.
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

struct PlanOptions {
  Layout layout = Layout::expert_major;
  /// Each expert's block of expert-major rows starts at a multiple of this many rows; the gap is zero-filled.
  std::int32_t alignment = 1;
  /// Most rows a physical expert accepts. What exceeds it is dropped, as if routed to −1: later source ranks lose
  /// first, and within a source later tokens. Weights are not renormalised.
  std::int64_t capacity = kUnlimited;
  /// `padded` only: the most tokens any rank brings; the same on every rank.
  std::int64_t max_tokens = 0;
  /// Of several hosts; `padded` always spreads its rows evenly.
  Forwarders forwarders = Forwarders::balanced;

  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
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

  /// Rows of this rank's dispatch output, padding included.
  [[nodiscard]] std::int64_t num_rows() const;
  /// Rows in expert-major order on this rank, padding included; equal to num_rows() except in `token_unique`.
  [[nodiscard]] std::int64_t num_expert_rows() const;
  /// [local experts]: first expert-major row of each local expert.
  [[nodiscard]] std::span<const std::int64_t> expert_offsets() const;
  /// [local experts]: rows of each local expert without padding. Empty for `padded`, whose counts arrive with the rows.
  [[nodiscard]] std::span<const std::int64_t> expert_counts() const;

  /// `token_unique`, [num_expert_rows]: the unique row that an expert-major row copies; −1 for padding.
  [[nodiscard]] std::span<const std::int32_t> unique_of_expert_row() const;
  /// `token_unique`, [num_rows, topk]: the expert-major rows of a unique row, by ascending expert; −1 fills the tail.
  [[nodiscard]] std::span<const std::int32_t> expert_rows_of_unique() const;
  /// `token_unique`, [num_rows, topk]: local expert (0 = this rank's first) of each of those rows; −1 fills the tail.
  [[nodiscard]] std::span<const std::int32_t> unique_experts() const;
  /// `token_unique`, [num_rows, topk]: routing weight of each of those rows; 0 fills the tail.
  [[nodiscard]] std::span<const float> unique_weights() const;

  /// Entries of this rank's routing that the capacity limit dropped.
  [[nodiscard]] std::int64_t num_dropped() const;
  /// All ranks' traffic for rows of row_bytes; not for `padded`, where no rank knows the others' counts.
  [[nodiscard]] Traffic traffic(std::size_t row_bytes) const;

  /// Equal on all ranks of one collective plan call.
  [[nodiscard]] std::uint64_t hash() const;

  /// For the engine.
  [[nodiscard]] const std::shared_ptr<const PlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const PlanData> data_;
};

}  // namespace shunt
