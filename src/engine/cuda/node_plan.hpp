// A plan that a device made and holds, and the buffers of `padded` plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda/map_tables.hpp"
#include "core/cuda/segment.hpp"
#include "core/hash.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/plan_data.hpp"
#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class NodeEngine;

/// The buffers of `padded` rows: the engine's own, one set per map, bound on tokens and packing.
struct PaddedBuffers {
  /// The buffers whose addresses ranks exchange.
  enum Place : std::uint8_t { kRows, kRowScales, kCounts, kExpertOut, kBegins, kNumPlaces };

  /// Tokens quantised to fp8 before they are sent.
  struct Quantised {
    Tensor x, scales;
    std::shared_ptr<std::byte> pointers;  ///< device: pointers to the two
  };

  /// Equal for plans that share buffers; the key of the engine's table.
  static std::uint64_t hash_of(std::uint64_t map, const PlanOptions& options) {
    return Hasher().add(map, options.max_tokens, options.packed).value();
  }

  /// [ranks], device: every rank's buffer of this kind.
  [[nodiscard]] std::byte** peers_at(Place place) const {
    return reinterpret_cast<std::byte**>(peers.get()) + place * num_ranks;
  }
  [[nodiscard]] device::Term* terms_of_rows() const { return reinterpret_cast<device::Term*>(terms.get()); }

  /// Counts the engine's sets of buffers; equal on all ranks. A set that was evicted and made again has another one.
  std::uint64_t generation = 0;
  std::shared_ptr<const device::MapTables> map;
  std::int32_t num_ranks = 0;
  std::int32_t num_local = 0;
  Tensor rows;
  Tensor row_scales;  ///< empty unless rows are fp8
  /// `packed` only: the caller's rows instead, and where each source's rows begin in them.
  Tensor packed_rows;
  Tensor packed_row_scales;
  Tensor packed_counts;               ///< a copy of counts, which a rank that was left out may still write
  std::shared_ptr<std::byte> begins;  ///< [local experts, ranks]
  Tensor expert_out;
  Quantised quantised;
  Tensor counts;                      ///< [local experts × ranks, 1]: words, as f32 are
  std::shared_ptr<std::byte> terms;   ///< [tokens, topk]
  std::shared_ptr<std::byte> copies;  ///< [tokens, topk] chosen copies; null without replicas
  /// [kNumPlaces, ranks] pointers into ranks' memory, null for ranks that are left out. Device memory, so that graphs
  /// see it.
  std::shared_ptr<std::byte> peers;
  std::vector<std::int32_t> offsets;  ///< [local experts + 1]: where each expert's block begins
  std::shared_ptr<std::byte> offsets_on_device;
};

struct NodePlan final : PlanData {
  [[nodiscard]] PlanArrays host_arrays() const override;
  [[nodiscard]] PlanArrays device_arrays() const override;
  [[nodiscard]] PlanContents read() const override;
  void require_counts(std::string_view what) const override;

  std::shared_ptr<const NodeEngine> owner;
  std::shared_ptr<const device::MapTables> map;  ///< kept alive for graphs that replay the planning

  // The routing, on the device.
  const std::int32_t* experts = nullptr;
  const float* weights = nullptr;
  const std::int64_t* wide_experts = nullptr;  ///< null, or the source of `experts`
  std::shared_ptr<std::byte> routing_block;    ///< holds those that are not the caller's

  std::shared_ptr<std::byte> block;    ///< holds the arrays
  std::shared_ptr<std::byte> clamped;  ///< `token_unique` with a capacity: the routing after dropping
  std::shared_ptr<std::byte> copies;   ///< with replicas: the chosen copy of each entry
  device::PlanShape shape{};
  device::PlanArrays arrays{};

  std::shared_ptr<const PaddedBuffers>
      padded;  ///< layout `padded` only, which has a routing and nothing else of the above
};

}  // namespace shunt
