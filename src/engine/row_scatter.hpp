// Writes a token's row and its companions into their slots.
#pragma once

#include <span>
#include <vector>

#include "engine/row_block.hpp"
#include "kernels/store.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// One rank's block, as this rank addresses it.
struct Receiver {
  RowBlock block;
  std::byte* base;  ///< nullptr for a far rank: what is meant for it takes another way
};

class RowScatter {
 public:
  /// `receivers` is by rank.
  RowScatter(const RowFormat& format, std::vector<Receiver> receivers, Store store)
      : format_(format), receivers_(std::move(receivers)), store_(store) {}

  [[nodiscard]] const Receiver& receiver(RankId rank) const { return receivers_[rank.index()]; }
  [[nodiscard]] std::span<const Receiver> receivers() const { return receivers_; }

  /// `scales` has format.scales_per_row floats; no alignment is needed.
  void write(const std::byte* row, const std::byte* scales, const RowOrigin& origin, std::span<const Target> targets);

 private:
  RowFormat format_;
  std::vector<Receiver> receivers_;
  Store store_;
};

}  // namespace shunt
