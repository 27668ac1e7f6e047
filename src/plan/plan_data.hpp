// The data of a plan on one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/closes.hpp"
#include "core/wiring.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The destination of one row of this rank. A token's targets are in the order of the reduction tree: by node, rank,
/// logical expert.
struct Target {
  RankId rank;
  Slot slot;
  std::int16_t choice;              ///< index in the token's top-k; −1 in `token_unique`, where a row serves several
  Closes closes = Closes::nothing;  ///< what ends with this term when the token's list is summed
  float weight;                     ///< 1 in `token_unique`
};

/// resize() leaves new elements uninitialised, so that targets are written once.
template <class T>
struct Uninitialised : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Uninitialised<U>;
  };
  template <class U>
  void construct(U*) noexcept {}
};
using Targets = std::vector<Target, Uninitialised<Target>>;

/// The quantities of Plan::traffic(), in rows; empty for `padded`.
struct TrafficCounts {
  std::vector<std::uint64_t> sent_rows;  ///< [ranks]: rows that this rank writes into each rank's output
  // Sums over all ranks.
  std::uint64_t rows = 0;
  std::uint64_t rows_between_ranks = 0;
  std::uint64_t tokens_between_nodes = 0;
  std::uint64_t tokens_to_ranks = 0;  ///< counts a token once for each rank that it goes to
  std::uint64_t routed_tokens = 0;    ///< tokens with at least one expert
  std::uint64_t heaviest_link = 0;    ///< several machines, as in Traffic
  std::uint64_t least_heaviest_link = 0;

  bool operator==(const TrafficCounts&) const = default;
};

/// Tokens of this rank that go to a far node through one of its ranks, ascending.
struct OutFlow {
  RankId forwarder;
  std::vector<std::uint32_t> tokens;
};

/// What this rank, as a forwarder, distributes inside its node for one far source.
struct InFlow {
  RankId source;
  std::vector<std::uint32_t> tokens;        ///< indices on the source, ascending
  std::vector<std::uint32_t> first_target;  ///< [tokens + 1]
  Targets targets;                          ///< in the token's order; `choice` is −1
  /// `padded`: rows from the source for each physical expert of this node; empty if another rank publishes them.
  std::vector<std::int32_t> source_counts;

  [[nodiscard]] std::span<const Target> targets_of(std::size_t i) const {
    return std::span(targets).subspan(first_target[i], first_target[i + 1] - first_target[i]);
  }
};

/// Rows received for each expert, known once a dispatch of `packed` rows is complete. They are the same for every
/// dispatch with the plan.
class ArrivedCounts {
 public:
  /// [local experts, ranks]; empty until known. Any thread.
  [[nodiscard]] std::span<const std::int32_t> get() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  void set(std::span<const std::int32_t> counts) {
    const std::lock_guard lock(mutex_);
    if (counts_.empty()) counts_.assign(counts.begin(), counts.end());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int32_t> counts_;  // set once
};

/// Engines on devices derive from it to add their own state.
struct PlanData {
  PlanData() = default;
  PlanData(const PlanData&) = default;
  PlanData(PlanData&&) = default;
  PlanData& operator=(const PlanData&) = default;
  PlanData& operator=(PlanData&&) = default;
  virtual ~PlanData() = default;

  /// Arrays in host memory; Error(unsupported) if they are only on the device.
  [[nodiscard]] virtual PlanArrays host_arrays() const;
  /// Arrays in device memory; Error(unsupported) without a device.
  [[nodiscard]] virtual PlanArrays device_arrays() const;
  /// Implements Plan::read().
  [[nodiscard]] virtual PlanContents read() const;
  /// Throws Error(unsupported) that names `what` unless the plan holds values derived from all ranks' counts.
  virtual void require_counts(std::string_view what) const;

  PlanOptions options;
  Topology topology;
  RankId self;
  std::int32_t topk = 0;
  std::int32_t num_local_experts = 0;
  std::vector<std::int32_t> first_physical;  ///< [ranks + 1]: first physical expert of each rank, as in the expert map
  std::int64_t num_tokens = 0;
  std::int64_t num_dropped = 0;
  std::uint64_t hash = 0;
  std::uint64_t engine = 0;  ///< number of the engine that made the plan

  // This rank as a source.
  std::vector<std::uint32_t> first_target;  ///< [tokens + 1]
  Targets targets;

  // This rank as a receiver.
  std::vector<std::int64_t> rows_of_rank;  ///< [ranks]: num_rows() of every rank, to locate a peer's companions
  std::int64_t num_expert_rows = 0;
  // As in PlanArrays.
  std::vector<std::int32_t> expert_offsets;
  std::vector<std::int32_t> expert_counts;
  std::vector<std::int32_t> row_count;
  std::vector<std::int32_t> unique_of_expert_row;
  std::vector<std::int32_t> expert_rows_of_unique;
  std::vector<std::int32_t> unique_experts;
  std::vector<float> unique_weights;

  // Several machines only.
  Wiring wiring;
  std::vector<OutFlow> out_flows;
  std::vector<InFlow> in_flows;

  TrafficCounts traffic;

  /// `padded`: rows this rank sends to each physical expert, [physical experts].
  std::vector<std::int32_t> padded_send_counts;
  std::shared_ptr<ArrivedCounts> arrived_counts;  ///< `packed`, in host memory

  [[nodiscard]] std::span<const Target> targets_of(std::int64_t token) const {
    const auto begin = first_target[static_cast<std::size_t>(token)];
    const auto end = first_target[static_cast<std::size_t>(token) + 1];
    return std::span(targets).subspan(begin, end - begin);
  }
  [[nodiscard]] bool is_near(RankId rank) const { return wiring.are_near(rank, self); }
  [[nodiscard]] std::int64_t num_rows() const { return rows_of_rank[self.index()]; }
};

}  // namespace shunt
