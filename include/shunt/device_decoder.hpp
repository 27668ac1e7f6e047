// Shuffles of few tokens on GPUs, for decoding: nothing is planned or exchanged before rows are sent. Only in builds
// with CUDA (SHUNT_CUDA); link shunt::device.
#pragma once

#include <cstdint>
#include <memory>

#include "shunt/device_engine.hpp"

namespace shunt {

/// Rows lie in the `padded` layout, [local experts, ranks × max_tokens, hidden]: row i of source r for an expert stands
/// at r × max_tokens + i. Two launches each way. The map is fixed; results are bit for bit those of Engine and
/// DeviceEngine.
///
/// Dispatch and combine take turns, the same on all ranks; that is what makes buffers free again without asking. So
/// what experts make of rows() is written to expert_out() between the two, and expert_out() stays unchanged until the
/// next dispatch is complete. Streams, faults and graphs are as for DeviceEngine.
class DeviceDecoder {
 public:
  struct Impl;

  /// Collective. options.max_tokens: tokens that any rank brings, at most.
  DeviceDecoder(World& world, const DeviceHeap& heap, const ExpertMap& map, const DeviceEngineOptions& options);

  /// x: [tokens, hidden] in the row dtype, unchanged until the ticket is complete. Experts out of range are dropped.
  /// Result: rows().
  [[nodiscard]] DeviceTicket<Tensor> dispatch(const DeviceRouting& routing, const ConstTensor& x,
                                              Stream stream = nullptr);

  /// Of expert_out(), for the tokens of the last dispatch. Result: [tokens, hidden].
  [[nodiscard]] DeviceTicket<Tensor> combine(const DeviceCombineOptions& options = {});

  /// [local experts × ranks × max_tokens, hidden] in the row dtype; rows beyond a source's count hold anything.
  [[nodiscard]] const Tensor& rows() const;
  /// [local experts, ranks], device: rows that each source sent.
  [[nodiscard]] const std::int32_t* source_counts() const;
  /// As rows(), in the expert dtype.
  [[nodiscard]] const Tensor& expert_out() const;

  [[nodiscard]] Stream stream() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
