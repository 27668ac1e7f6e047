// The choice among the kernels that move rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "shunt/tensor.hpp"

namespace shunt::device {

/// Copies every row of x into its slots. out: [ranks], device: each rank's rows. sms: as in DeviceOptions.
inline void launch_copy(const PlanShape& shape, const PlanArrays& arrays, const ConstTensor& x, std::byte* const* out,
                        const std::uint32_t* stop, std::int32_t sms, cudaStream_t stream) {
  // A third of a tile's list is empty with 8 ranks and top-8; docs/performance.md has the figures for other numbers.
  constexpr std::int32_t kUniqueRowsPerBlock = 3;
  const BulkCopyRows in_bulk{.x = x.data,
                             .out = out,
                             .terms = arrays.terms,
                             .num_tokens = shape.num_tokens,
                             .topk = shape.topk,
                             .row_bytes = x.row_bytes(),
                             .stop = stop};
  if (sms > 0 && fits_bulk_copies(in_bulk)) return launch(in_bulk, sms, stream);
  launch(CopyRows{.x = x.data,
                  .out = out,
                  .segments = arrays.segments,
                  .num_segments = shape.num_segments(),
                  .row_bytes = x.row_bytes(),
                  .stop = stop,
                  .list_length = shape.unique ? kTileTokens * shape.rows_per_token() : 1,
                  .segments_per_block = shape.unique ? kUniqueRowsPerBlock : 1},
         stream);
}

inline void launch_sum(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream) {
  if (sms > 0 && fits_pipeline(reduce))
    launch_pipelined(reduce, sms, stream);
  else
    launch(reduce, stream);
}

}  // namespace shunt::device
