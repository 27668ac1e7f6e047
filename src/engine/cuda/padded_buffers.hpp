// Where `padded` rows lie: the engine's own, one set for each map, bound on tokens and way of packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda/map_tables.hpp"
#include "core/cuda/segment.hpp"
#include "core/hash.hpp"
#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

struct PaddedBuffers {
  /// What ranks know of each other.
  enum Place : std::uint8_t { kRows, kRowScales, kCounts, kExpertOut, kBegins, kNumPlaces };

  /// Tokens in fp8, before they are sent.
  struct Quantised {
    Tensor x, scales;
    std::shared_ptr<std::byte> pointers;  ///< device: to the two
  };

  /// Equal for plans that share buffers.
  static std::uint64_t hash_of(std::uint64_t map, const PlanOptions& options) {
    return Hasher().add(map).add(static_cast<std::uint64_t>(options.max_tokens)).add(options.packed).value();
  }

  /// [ranks], device.
  [[nodiscard]] std::byte** peers_at(Place place) const {
    return reinterpret_cast<std::byte**>(peers.get()) + place * num_ranks;
  }
  [[nodiscard]] device::Term* terms_of_rows() const { return reinterpret_cast<device::Term*>(terms.get()); }

  std::shared_ptr<const device::MapTables> map;
  std::int32_t num_ranks = 0;
  std::int32_t num_local = 0;
  Tensor rows;
  Tensor row_scales;  ///< empty unless rows are fp8
  /// `packed` only: what the caller gets instead, and where each source's rows begin there.
  Tensor packed_rows;
  Tensor packed_row_scales;
  Tensor packed_counts;               ///< as counts, which a rank that was left out may still write
  std::shared_ptr<std::byte> begins;  ///< [local experts, ranks]
  Tensor expert_out;
  Quantised quantised;
  Tensor counts;                      ///< [local experts × ranks, 1]: words, as f32 are
  std::shared_ptr<std::byte> terms;   ///< [tokens, topk]
  std::shared_ptr<std::byte> copies;  ///< [tokens, topk], of experts, as chosen; null where none has several
  /// [kNumPlaces, ranks] pointers into ranks' memory, null for ranks that are left out. Device memory, so that graphs
  /// see it.
  std::shared_ptr<std::byte> peers;
  std::vector<std::int32_t> offsets;  ///< [local experts + 1]: where each expert's block begins
  std::shared_ptr<std::byte> offsets_on_device;
};

}  // namespace shunt
