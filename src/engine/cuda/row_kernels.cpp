#include "engine/cuda/row_kernels.hpp"

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"

namespace shunt::device {
namespace {

/// A third of a tile's list is empty with 8 ranks and top-8; docs/performance.md has the figures for other numbers.
constexpr std::int32_t kUniqueRowsPerBlock = 3;

}  // namespace

void launch_copy(const DevicePlanData& plan, const ConstTensor& x, std::byte* const* out, const std::uint32_t* stop,
                 const Lane& lane) {
  const BulkCopyRows in_bulk{.x = x.data,
                             .out = out,
                             .terms = plan.arrays.terms,
                             .num_tokens = plan.shape.num_tokens,
                             .topk = plan.shape.topk,
                             .row_bytes = x.row_bytes(),
                             .stop = stop};
  if (lane.sms > 0 && fits_bulk_copies(in_bulk))
    launch(in_bulk, lane.sms, lane.stream);
  else
    launch(CopyRows{.x = x.data,
                    .out = out,
                    .segments = plan.arrays.segments,
                    .num_segments = plan.shape.num_segments(),
                    .row_bytes = x.row_bytes(),
                    .stop = stop,
                    .list_length = plan.shape.unique ? kTileTokens * plan.shape.rows_per_token() : 1,
                    .segments_per_block = plan.shape.unique ? kUniqueRowsPerBlock : 1},
           lane.stream);
}

void launch_sum(const ReduceRows& reduce, const Lane& lane) {
  if (lane.sms > 0 && fits_pipeline(reduce))
    launch_pipelined(reduce, lane.sms, lane.stream);
  else
    launch(reduce, lane.stream);
}

}  // namespace shunt::device
