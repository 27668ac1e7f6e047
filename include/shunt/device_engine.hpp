// Plans shuffles and carries them out on GPUs that reach each other's memory. Only in builds with CUDA (SHUNT_CUDA);
// link shunt::device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "shunt/device_heap.hpp"
#include "shunt/device_plan.hpp"
#include "shunt/device_rows.hpp"
#include "shunt/device_ticket.hpp"
#include "shunt/dtype.hpp"
#include "shunt/engine.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

struct DeviceEngineOptions {
  /// Elements per row, at least 1.
  std::int64_t hidden = 0;
  // As in EngineOptions.
  DType dtype = bf16;
  std::optional<DType> expert_dtype = std::nullopt;
  std::optional<DType> result_dtype = std::nullopt;
  std::optional<DType> wire_dtype = std::nullopt;
  Reduction reduction = Reduction::tree;
  /// Tokens that any rank brings to a plan, at most.
  std::int64_t max_tokens = 0;
  /// Physical experts that a map has, at most.
  std::int32_t max_experts = 1024;
  /// Operations run on this stream, one after the other; null: on the heap's, which this rank's engines share, so that
  /// all ranks call operations of all of them in the same order. Ranks of a process never share a stream, so CUDA's
  /// default stream will not do. Each stream that operations run on counts as a rank does in DeviceHeap: more of them
  /// than CUDA_DEVICE_MAX_CONNECTIONS, in a process and on a device, may wait for each other until the deadline. It
  /// outlives the engine, its plans and its tickets. Where it is confined to few multiprocessors (a green context),
  /// they have room for a waiting block of each rank that shares them, of 512 threads (DeviceDecoder: 1024), and for
  /// one that does not wait.
  Stream stream = nullptr;
  /// Dispatch, combine and dispatch_backward carry rows on at most so many multiprocessors, so that others are left to
  /// what runs beside; 0: on all. Each carries about 60 GB/s (docs/performance.md). Planning, combine_backward, fp8,
  /// more than 32 choices per token, and rows, x or results that are not aligned to 16 bytes are not limited: for that,
  /// or where ranks share a device, let `stream` be one of a green context. Compute capability 9.0 or later. May differ
  /// between ranks.
  std::int32_t sms = 0;
  /// A rank that waits longer for another fails; by default SHUNT_DEADLINE_MS.
  std::optional<std::chrono::milliseconds> deadline = std::nullopt;
};

struct DeviceDispatchOptions {
  /// The operation starts when what was put on this stream before is done; null: on the engine's stream alone.
  Stream stream = nullptr;
  /// As in DispatchOptions.
  ConstTensor scales = {};
  /// [plan.num_rows(), hidden] for the rows. Written without a copy where it came from DeviceHeap::allocate; what is
  /// captured in a graph must have. Forbidden if the plan was given rows: they are used.
  Tensor out = {};
  /// fp8 rows only, else forbidden: [plan.num_rows(), scales_per_row(hidden)] f32 for their scales, as `out`.
  Tensor out_scales = {};
};

struct DeviceCombineOptions {
  /// As in DeviceDispatchOptions.
  Stream stream = nullptr;
  /// [tokens, hidden] in the result dtype; any device memory.
  Tensor out = {};
};

struct DeviceGradients {
  /// [plan.num_rows(), hidden] in the expert dtype: weight × gradient of the token; padding is zero.
  Tensor expert_out;
  /// [tokens, topk] f32 gradient of each routing weight; 0 where dropped. Empty in `token_unique`.
  Tensor weights;
};

/// Tensors are in device memory. All ranks make their engines in the same order with the same options (but for the
/// stream and sms) and call each engine's operations in the same order. Operations are put on the engine's stream and
/// nothing waits on the host, except in exact plans, in plans with a map that is new to the engine, where tickets are
/// waited for, and for memory of earlier operations where the heap has no other. An engine keeps the last maps it has
/// planned with, some words per expert in the heap. Engines that share a heap's stream wait for each other where one
/// waits on the host, also to be destroyed.
///
/// So operations can be captured in a CUDA graph, if the engine has planned with the same map before, plans have a
/// bound and rows that peers read or write came from DeviceHeap::allocate. Capture with
/// cudaStreamCaptureModeThreadLocal; replay on the engine's stream, on all ranks equally often. Plans, inputs and
/// outputs outlive the graph and its last replay. A capture that one rank gives up is repeated by all, as plans are
/// counted. No engine ends while its stream is captured.
///
/// Where engines share a heap, hold outputs until their operation is complete, also when it fails: let go of before,
/// their memory is another engine's at once. Plans that are not in graphs, but for rows that they were given, and what
/// else an engine takes of the heap, need no such care: it goes back when the stream has passed its last use, at the
/// engine's next operation.
///
/// Ranks of one process on one device share CUDA's queues for copies between host and device. A copy that stands behind
/// an operation on a stream holds up the other ranks' copies, so there wait for the ticket first, then copy.
///
/// A rank that does not come in time, that the world has lost, or that comes for something else, is a fault, and so is
/// a routing that makes no sense, on all ranks: the operation and all later ones move nothing, and the next ticket that
/// is waited for, or the next call, throws the Error. Afterwards the engine can only be destroyed; the device, its
/// context and other engines stay as they are. Memory that ranks which come late may still write is handed to nobody
/// else until the heap dies: at most the last plan and the last operation's rows, and the engine's own. An engine, and
/// a plan or a ticket of it, keeps its rank in the world.
class DeviceEngine {
 public:
  struct Impl;

  /// Collective.
  DeviceEngine(World& world, const DeviceHeap& heap, const DeviceEngineOptions& options);

  /// `stream`: as in DeviceDispatchOptions; the routing must have been put there.
  [[nodiscard]] DevicePlan plan(const DeviceRouting& routing, const ExpertMap& map,
                                const DevicePlanOptions& options = {}, Stream stream = nullptr);

  /// x: [tokens, hidden] in the row dtype; for fp8 rows also f32, bf16 or f16, quantised on the way.
  [[nodiscard]] DeviceTicket<DeviceRows> dispatch(const DevicePlan& plan, const ConstTensor& x,
                                                  const DeviceDispatchOptions& options = {});

  /// As Engine::combine. Rows that did not come from DeviceHeap::allocate cost a copy, and can't be captured.
  [[nodiscard]] DeviceTicket<Tensor> combine(const DevicePlan& plan, const ConstTensor& expert_out,
                                             const DeviceCombineOptions& options = {});

  /// As Engine::dispatch_backward.
  [[nodiscard]] DeviceTicket<Tensor> dispatch_backward(const DevicePlan& plan, const ConstTensor& grad_rows,
                                                       const DeviceCombineOptions& options = {});

  /// As Engine::combine_backward. `stream`: as in DeviceDispatchOptions.
  [[nodiscard]] DeviceTicket<DeviceGradients> combine_backward(const DevicePlan& plan, const ConstTensor& grad_out,
                                                               const ConstTensor& expert_out, Stream stream = nullptr);

  /// A buffer of [plan.num_rows(), hidden] in the expert dtype that makes combine zero-copy. Not collective.
  [[nodiscard]] Tensor expert_out(const DevicePlan& plan) const;

  [[nodiscard]] Stream stream() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
