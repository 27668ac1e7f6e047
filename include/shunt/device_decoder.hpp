// Shuffles of few tokens on GPUs, for decoding: nothing is planned or exchanged before rows are sent. Only in builds
// with CUDA (SHUNT_CUDA); link shunt::device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "shunt/device_engine.hpp"

namespace shunt {

/// Rows lie in the `padded` layout, [local experts, ranks × max_tokens, hidden]: row i of source r for an expert stands
/// at r × max_tokens + i. One launch to the experts (fp8: two), two back. The map is fixed; results are bit for bit
/// those of Engine and DeviceEngine.
///
/// Dispatch and combine take turns, the same on all ranks; that is what makes buffers free again without asking. So
/// what experts make of rows() is written to expert_out() between the two, and expert_out() stays unchanged until the
/// next dispatch is complete. Streams, faults and graphs are as for DeviceEngine.
///
/// When a combine is complete here, other ranks may still read this rank's expert_out(). So a decoder is let go of when
/// the last combine is complete on all ranks: after World::barrier(), say. Its destructor waits for what this rank has
/// under way.
///
/// Each consists of two halves that can be called instead, with other work between them: the first sends and returns,
/// the second waits for what others send. Between them nothing of this rank is on the device, so all of it computes.
/// Ranks need not agree on whether they call halves.
class DeviceDecoder {
 public:
  struct Impl;

  /// Collective. options.max_tokens: tokens that any rank brings, at most. options.sms is 0, else Error(unsupported):
  /// for few multiprocessors, let the stream be one of a green context.
  DeviceDecoder(World& world, const DeviceHeap& heap, const ExpertMap& map, const DeviceEngineOptions& options);

  /// x: [tokens, hidden] in the row dtype, or for fp8 rows f32, bf16 or f16, which is quantised by one launch more;
  /// unchanged until the ticket is complete. Result: rows(). An expert that is out of range, or that the token named
  /// before, is dropped as if it were −1: a plan refuses such a routing, but here rows are on their way before anybody
  /// could have been told.
  [[nodiscard]] DeviceTicket<Tensor> dispatch(const DeviceRouting& routing, const ConstTensor& x,
                                              Stream stream = nullptr);
  void dispatch_send(const DeviceRouting& routing, const ConstTensor& x, Stream stream = nullptr);
  [[nodiscard]] DeviceTicket<Tensor> dispatch_receive(Stream stream = nullptr);

  /// Of expert_out(), for the tokens of the last dispatch. Result: [tokens, hidden].
  [[nodiscard]] DeviceTicket<Tensor> combine(const DeviceCombineOptions& options = {});
  /// Tells the others that expert_out() is written.
  void combine_send(Stream stream = nullptr);
  [[nodiscard]] DeviceTicket<Tensor> combine_receive(const DeviceCombineOptions& options = {});

  /// The rank that did not come, or is lost, where that is the fault of the last Error, also of leave_out(): one of
  /// those to leave out.
  [[nodiscard]] std::optional<RankId> missing() const;

  /// Goes on without these ranks, be they lost, slow or no longer needed, and without those that were left out before.
  /// What routings send to a copy of an expert there is dropped, and changes nothing about a token's other copies;
  /// nobody writes to these ranks' memory or waits for them, and source_counts() of theirs are 0 unless they come
  /// later. Collective over the ranks that stay, which bring the same list; each waits on the host, at most for twice
  /// the deadline. A fault is forgotten, even where no rank is named, and so is a dispatch that was not combined: a
  /// dispatch comes next. Graphs that were captured before follow. If it throws, as one that stays did not come, it may
  /// be called again, with the same ranks or with more.
  ///
  /// A rank that is left out and comes later reports that others don't come. It changes no results of theirs: its rows
  /// have their own places. But it may set its source_counts() once more, so that experts compute rows in vain. To take
  /// it back, make a new decoder.
  void leave_out(std::span<const RankId> ranks);

  /// [local experts × ranks × max_tokens, hidden] in the row dtype; rows beyond a source's count hold anything.
  [[nodiscard]] const Tensor& rows() const;
  /// [local experts × ranks × max_tokens, scales_per_row(hidden)] f32, as rows(); empty unless rows are fp8.
  [[nodiscard]] const Tensor& row_scales() const;
  /// [local experts, ranks], device: rows that each source sent.
  [[nodiscard]] const std::int32_t* source_counts() const;
  /// As rows(), in the expert dtype.
  [[nodiscard]] const Tensor& expert_out() const;

  [[nodiscard]] Stream stream() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
