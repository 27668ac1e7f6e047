// Makes a plan in rounds: each rank produces bytes (a proposal) and receives every rank's bytes. The engine exchanges
// them, so that planning needs no transport.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/dtype.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The engine's parameters that all ranks must agree on; compared in the first round, with map, topology and plan
/// options.
struct EngineShape {
  std::int64_t hidden = 0;
  DType dtype = bf16;
  DType expert_dtype = bf16;
  DType result_dtype = bf16;
  DType wire_dtype = bf16;
  bool flat = false;  ///< else tree
  bool ids = false;
  bool weights = false;
};

class Planner {
 public:
  /// Validates the routing: throws Error(invalid_argument) that names `self`, the token and the cause. Keeps references
  /// to the arguments until finish(). An empty wiring means that all ranks are on one machine.
  Planner(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self,
          const PlanOptions& options, const EngineShape& shape, const Wiring& wiring = {});
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  /// Of the whole plan; the same on all ranks.
  [[nodiscard]] std::uint32_t num_rounds() const;
  /// False once the plan can be finished: at once for `padded`, after one round, or after two with a capacity limit.
  [[nodiscard]] bool needs_round() const;

  /// This rank's bytes for the next round; valid until accept(). Far ranks need only the first bytes_for_far().
  [[nodiscard]] std::span<const std::byte> proposal() const;
  [[nodiscard]] std::size_t bytes_for_far() const;

  /// proposals: every rank's bytes in rank order, including this rank's. They come from other processes and are
  /// checked: throws Error(mismatch) that names both ranks and the difference.
  void accept(std::span<const std::span<const std::byte>> proposals);

  /// What this rank sends to a far rank after the last round, besides counts.
  struct FarList {
    RankId rank;
    std::vector<std::uint32_t> words;
  };
  /// Equal on ranks that agree on everything but their routing.
  [[nodiscard]] std::uint64_t agreement_hash() const;
  /// This rank's far lists, and the ranks whose far lists must be accepted before finish().
  [[nodiscard]] std::vector<FarList> far_lists();
  [[nodiscard]] std::vector<RankId> far_list_senders();
  /// Upper bound on a correct far list of this sender.
  [[nodiscard]] std::size_t most_far_list_bytes(RankId source) const;
  /// Throws as accept() does.
  void accept_far_list(RankId source, std::span<const std::byte> bytes);

  [[nodiscard]] std::shared_ptr<PlanData> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shunt
