// `packed` rows of `padded` in host memory: at the front of their expert's block, by source, then token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shunt/tensor.hpp"

namespace shunt {

/// A source's rows for an expert, in rows of a rank's output.
struct PackedRun {
  std::int64_t padded;  ///< where the first one stands in `padded`
  std::int64_t packed;  ///< … and packed; never behind
  std::int64_t count;
};

/// In ascending order. counts: [local experts, ranks], each at most max_tokens.
std::vector<PackedRun> packed_runs(std::span<const std::int32_t> counts, std::int64_t num_ranks,
                                   std::int64_t max_tokens);

/// Moves rows of row_bytes to the front.
void pack_in_place(std::span<const PackedRun> runs, std::byte* rows, std::size_t row_bytes);

/// Copies packed rows to where they stand in `padded`; the two lie apart.
void unpack(std::span<const PackedRun> runs, const ConstTensor& packed, const Tensor& padded);

}  // namespace shunt
