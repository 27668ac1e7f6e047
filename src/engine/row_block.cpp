#include "engine/row_block.hpp"

#include <cstring>

namespace shunt {

void copy_rows(const ConstTensor& from, const Tensor& to) {
  if (from.bytes() == 0) return;
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  for (std::int64_t i = 0; i < from.rows; ++i) std::memcpy(to.row(i), from.row(i), from.row_bytes());
}

std::vector<PackedRun> packed_runs(std::span<const std::int32_t> counts, std::int64_t num_ranks,
                                   std::int64_t max_tokens) {
  std::vector<PackedRun> runs;
  std::int64_t packed = 0;
  for (std::int64_t run = 0; run < std::ssize(counts); ++run) {
    const std::int64_t padded = run * max_tokens;
    if (run % num_ranks == 0) packed = padded;
    const std::int64_t count = counts[static_cast<std::size_t>(run)];
    if (count > 0) runs.push_back({padded, packed, count});
    packed += count;
  }
  return runs;
}

// In ascending order, so that no row is overwritten before it was moved.
void pack_in_place(std::span<const PackedRun> runs, std::byte* rows, std::size_t row_bytes) {
  for (const PackedRun& run : runs)
    if (run.packed != run.padded)
      std::memmove(rows + static_cast<std::size_t>(run.packed) * row_bytes,
                   rows + static_cast<std::size_t>(run.padded) * row_bytes,
                   static_cast<std::size_t>(run.count) * row_bytes);
}

void unpack(std::span<const PackedRun> runs, const ConstTensor& packed, const Tensor& padded) {
  for (const PackedRun& run : runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      std::memcpy(padded.row(run.padded + i), packed.row(run.packed + i), packed.row_bytes());
}

}  // namespace shunt
