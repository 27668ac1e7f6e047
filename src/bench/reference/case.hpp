// Drawn rows for all four operations, and what must come of them.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/reference/dice.hpp"
#include "bench/reference/shuffle.hpp"

namespace shunt {

/// All vectors are [ranks].
struct ReferenceCase {
  std::vector<HostRows> x{};
  std::vector<HostRows> scales{};  ///< of fp8 x, else empty
  std::vector<HostRows> expert_out{};
  std::vector<HostRows> grad_rows{};
  std::vector<HostRows> grad_out{};

  struct Expected {
    std::vector<PlanData> plans;
    std::vector<ReferenceRows> dispatch;
    std::vector<HostRows> combine;
    std::vector<HostRows> dispatch_backward;
    std::vector<ReferenceGradients> combine_backward;
  } expected{};

  /// Draws rows of mixed magnitudes, so that the order of sums shows in their last bits, and computes what is expected.
  void draw(const ReferenceShuffle& reference, DType x_dtype, Dice& dice);
};

/// Moves one rank's padded rows to the front of each expert's `block_rows`, and the expert outputs with them; rows that
/// are not defined stay behind.
void pack(ReferenceRows& rows, HostRows& expert_out, std::size_t block_rows);

}  // namespace shunt
