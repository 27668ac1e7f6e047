// Rows in host memory: the layout of rows and companions in a receiver's block, copies, and packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shunt/rows.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// The contents of an engine's rows; equal on all ranks.
struct RowFormat {
  std::size_t row_bytes = 0;
  std::size_t scales_per_row = 0;  ///< 0: none
  bool origins = false;
  bool weights = false;
};

/// Rows first, then each companion as an array of its own, all aligned to cache lines. A pure function of format and
/// counts, so senders can compute addresses in a receiver's block.
class RowBlock {
 public:
  RowBlock(const RowFormat& format, std::int64_t num_rows, std::int64_t num_source_counts) : format_(format) {
    const auto count = static_cast<std::size_t>(num_rows);
    scales_ = after(0, count * format.row_bytes);
    origins_ = after(scales_, count * format.scales_per_row * sizeof(float));
    weights_ = after(origins_, format.origins ? count * sizeof(RowOrigin) : 0);
    source_counts_ = after(weights_, format.weights ? count * sizeof(float) : 0);
    bytes_ = after(source_counts_, static_cast<std::size_t>(num_source_counts) * sizeof(std::int32_t));
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  [[nodiscard]] std::byte* row(std::byte* base, std::size_t slot) const { return base + slot * format_.row_bytes; }
  [[nodiscard]] float* scales(std::byte* base, std::size_t slot) const {
    return reinterpret_cast<float*>(base + scales_) + slot * format_.scales_per_row;
  }
  [[nodiscard]] RowOrigin* origins(std::byte* base) const { return reinterpret_cast<RowOrigin*>(base + origins_); }
  [[nodiscard]] float* weights(std::byte* base) const { return reinterpret_cast<float*>(base + weights_); }
  [[nodiscard]] std::int32_t* source_counts(std::byte* base) const {
    return reinterpret_cast<std::int32_t*>(base + source_counts_);
  }

 private:
  static std::size_t after(std::size_t begin, std::size_t bytes) { return (begin + bytes + 63) / 64 * 64; }

  RowFormat format_;
  std::size_t scales_, origins_, weights_, source_counts_, bytes_;
};

/// Copies between tensors of equal shape that do not overlap; any strides.
void copy_rows(const ConstTensor& from, const Tensor& to);

// `packed` rows are at the front of their expert's block, by source, then token.

/// The rows of one source for one expert; positions in rows of the receiver's output.
struct PackedRun {
  std::int64_t padded;  ///< of the first row in the padded layout
  std::int64_t packed;  ///< of the first row when packed; at most `padded`
  std::int64_t count;
};

/// The non-empty runs, ascending. counts: [local experts, ranks], each at most max_tokens.
std::vector<PackedRun> packed_runs(std::span<const std::int32_t> counts, std::int64_t num_ranks,
                                   std::int64_t max_tokens);

/// Moves rows of row_bytes from their padded to their packed positions.
void pack_in_place(std::span<const PackedRun> runs, std::byte* rows, std::size_t row_bytes);

/// Copies packed rows to their padded positions in another tensor.
void unpack(std::span<const PackedRun> runs, const ConstTensor& packed, const Tensor& padded);

}  // namespace shunt
