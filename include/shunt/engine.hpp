// The engine: makes plans, and moves rows by them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shunt/dtype.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/rows.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"
#include "shunt/ticket.hpp"
#include "shunt/trace_recorder.hpp"
#include "shunt/world.hpp"

namespace shunt {

/// How combine sums a token's expert outputs; docs/adr/0002 defines both bit for bit.
enum class Reduction : std::uint8_t {
  /// Sums experts within a rank, then ranks within a node, then nodes. Depends on the map and the topology.
  tree,
  /// Sums logical experts in ascending order. Independent of the map; not for `token_unique`.
  flat,
};

/// What travels with each row, besides fp8 scales.
struct Companions {
  bool ids = false;
  bool weights = false;
};

/// How rows in device memory travel between nodes.
enum class DeviceNetwork : std::uint8_t {
  world,  ///< through pinned host memory, by the network that joined the world
  nccl,   ///< by NCCL, from device to device; the library is loaded at first use. The same on all ranks.
};

/// Options that only engines on devices have.
struct DeviceOptions {
  /// This rank's CUDA device. −1: chosen by the rank's index among the ranks of its machine, so that each rank has its
  /// own device if there are enough.
  std::int32_t index = -1;
  /// Bytes of each rank's heap, which holds plans, outputs and Engine::allocate's tensors; the same on all ranks. The
  /// world's first engine on a device allocates it, and the world keeps it. A later engine can't ask for more. Making
  /// that first engine may wait for the device, so other worlds of this process have no operations in progress there.
  std::size_t heap_bytes = std::size_t{1} << 30;
  /// Largest number of tokens of a rank in a plan.
  std::int64_t max_tokens = 4096;
  /// Upper bound on the physical experts of a map.
  std::int32_t max_experts = 1024;
  /// Within a node, the stream on which operations run, one after another. Null: the heap's stream, which all engines
  /// of this rank share; then all ranks call the operations of all these engines in the same order.
  /// - Ranks of one process never share a stream, so CUDA's default stream can't be used.
  /// - On each device, at most CUDA_DEVICE_MAX_CONNECTIONS streams of a process may run operations: more could wait for
  ///   each other until the deadline, and are Error(unsupported). Other streams of the process share these connections:
  ///   where engines have streams of their own, call their operations in the same order on all ranks.
  /// - The stream outlives the engine, its plans and its tickets.
  /// - If the stream is confined to few multiprocessors (a green context), these must have room for one waiting block
  ///   of 512 threads (`padded`: 1024) of each rank that shares them, and for one block that does not wait.
  Stream stream = nullptr;
  /// Upper bound on the multiprocessors that carry rows in dispatch, combine and dispatch_backward, so that others stay
  /// free for concurrent work; 0: all. Each carries about 60 GB/s (docs/performance.md). Requires compute
  /// capability 9.0 or later. May differ between ranks.
  ///
  /// Not limited are planning, `padded`, combine_backward, fp8, more than 32 choices per token, and rows, x or results
  /// that are not aligned to 16 bytes. To limit these, or if ranks share a device, let `stream` belong to a green
  /// context.
  std::int32_t sms = 0;

  // Between nodes only.
  DeviceNetwork network = DeviceNetwork::world;
  /// Rows travel between nodes in batches, each packed or unpacked by one kernel. A batch holds at most batch_bytes, or
  /// one row if a row is larger. num_batches of them are in pinned memory for each direction; for NCCL there is one per
  /// direction and rank, in device memory.
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::int32_t num_batches = 16;
};

struct EngineOptions {
  /// Elements per row, at least 1.
  std::int64_t hidden = 0;
  /// Element type of dispatched rows.
  DType dtype = bf16;
  /// Element type of expert outputs and of gradients of rows: f32, bf16 or f16. Default: `dtype`, or bf16 for fp8 rows.
  std::optional<DType> expert_dtype = std::nullopt;
  /// Element type of combine's result and of gradients of tokens: f32, bf16 or f16. Default: `expert_dtype`.
  std::optional<DType> result_dtype = std::nullopt;
  /// What sums are rounded to when they cross from node to node: f32, bf16 or f16. Default: `expert_dtype`.
  std::optional<DType> wire_dtype = std::nullopt;
  /// What sums are rounded to when they cross from rank to rank: f32, which is exact and the default, or the expert
  /// dtype, which is Error(unsupported) so far unless it is f32.
  std::optional<DType> rank_dtype = std::nullopt;
  Reduction reduction = Reduction::tree;
  Companions companions = {};
  /// An operation that takes longer fails. Default: SHUNT_DEADLINE_MS.
  std::optional<std::chrono::milliseconds> deadline = std::nullopt;
  /// Where the routings of this engine's plans are recorded; nowhere by default. May differ between ranks.
  TraceTarget trace = {};
  /// The engine's name in errors, such as the layer that it serves. May differ between ranks.
  std::string name = {};
  /// Set: rows and results are on a GPU; else they are in host memory. Set on all ranks or on none.
  std::optional<DeviceOptions> device = std::nullopt;
};

struct DispatchOptions {
  /// [tokens, scales_per_row(hidden)] f32. Required if x itself is fp8, forbidden otherwise.
  ConstTensor scales = {};
  /// [plan.num_rows(), hidden]: receives the rows. Forbidden if the plan has rows of its own (PlanOptions::rows), and
  /// for `padded` on devices. Peers write into it directly if it is from Engine::allocate and, in host memory, the
  /// engine carries no companions or scales and the layout is not `padded`; otherwise the rows take one copy.
  Tensor out = {};
  /// [plan.num_rows(), scales_per_row(hidden)] f32: receives the scales of fp8 rows, under the same rules as `out`.
  /// Forbidden for other rows.
  Tensor out_scales = {};
  /// Devices only. The operation starts after the work already on this stream, which is of the engine's device; null:
  /// it is ordered by the engine's stream alone.
  Stream stream = nullptr;
};

/// Options of combine and of the gradients.
struct CombineOptions {
  /// [tokens, hidden] in the result dtype: receives the result. Any memory of the engine's kind. Not for
  /// combine_backward.
  Tensor out = {};
  /// As DispatchOptions::stream.
  Stream stream = nullptr;
};

/// Moves rows between ranks: rows in host memory or, with EngineOptions::device, on GPUs; within a node and between
/// nodes. Every kind has the same calls, and gives the same slots and bits. What a kind can't do is Error(unsupported);
/// docs/errors.md has the table.
///
/// **Order.** All ranks make their engines in the same order with the same options, and call each engine's operations
/// in the same order. The order between engines is free, so ranks that wait for each other in different engines find
/// out only by the deadline. Operations start at once and proceed without further calls. An Error(invalid_argument) is
/// thrown before anything is sent, and the call may be repeated. An engine is light: one per layer is fine. Between
/// nodes of devices one per shape is better, as each engine pins its batches.
///
/// **Inputs** may have any row stride. Those of engines on devices may be in any memory, those of engines on host
/// memory are in host memory. What can't be read in place is copied first. Memory from Engine::allocate saves copies.
///
/// **Devices of one node.** Operations are put on the engine's stream. The host waits only
/// - in exact plans, and in plans whose map is new to the engine,
/// - in a ticket's wait(),
/// - for memory of earlier operations, if the heap has no other,
/// - for inputs in host memory.
///
/// Operations are launched so that they overlap with the end of the work ahead of them. Kernels of the caller that are
/// launched programmatically themselves (cudaLaunchAttributeProgrammaticStreamSerialization), ahead of an operation or
/// behind it, must wait for the kernel ahead of them (cudaGridDependencySynchronize) before they end or touch tensors.
///
/// So operations can be captured in a CUDA graph, under these conditions:
/// - The engine has planned with the same map before; plans are bounded (or `padded`); rows that peers read or write
///   are from Engine::allocate.
/// - Capture uses cudaStreamCaptureModeThreadLocal. The graph is replayed on the engine's stream, equally often on all
///   ranks.
/// - Plans, inputs and outputs outlive the graph and its last replay. No engine ends while its stream is captured.
/// - If one rank abandons a capture, all ranks repeat it, because plans are counted.
///
/// Memory that is released while an operation may use it is available to other engines at once: hold outputs until
/// their operation is complete.
///
/// **Devices of several nodes.** The host takes part: nothing can be captured, and a ticket's wait_on() blocks the
/// host.
///
/// **Ranks of one process on one device** share CUDA's queues for copies between host and device. A copy that is queued
/// behind an operation on a stream delays the other ranks' copies, so wait for the ticket before starting the copy.
///
/// **`padded` on devices of one node** is for decoding. Once the map is known, making a plan launches and exchanges
/// nothing.
/// - Dispatch sends, and its ticket's wait_on() receives. Combine signals the other ranks that expert_out(plan) is
///   written; its ticket's wait_on() waits for their signals and sums.
/// - Dispatch and combine alternate, with one pair in flight per engine. A combine takes the plan of the last dispatch,
///   or one like it.
/// - Rows, counts and expert_out(plan) belong to the engine. They are the same for all its plans with a map. Rows and
///   counts are valid until combine is called, packed ones until the next dispatch: after combine's signal a faster
///   rank may send its next rows. Leave expert_out(plan) unchanged until the ticket of the next dispatch was waited
///   for, as other ranks may still read it when a combine is complete here; after the last combine all ranks wait for
///   their streams and call World::barrier() before one of them ends its engine.
/// - In a CUDA graph, tickets are waited for or dropped while the call is captured.
/// - An expert that is out of range, or that the token named before, is dropped as if it were −1, because rows are sent
///   before a fault could be signalled.
///
/// **Faults.** It is a fault on all ranks if a rank is late beyond the deadline, is lost, calls another operation, or
/// passes an invalid routing. The operation and all later ones of the engine fail with an Error that names that rank.
/// On a device, outputs are then poisoned (all bytes 0xff, which is NaN; counts are 0). The device, its context and
/// other engines stay intact, and memory that late ranks may still write is not reused.
class Engine {
 public:
  struct Impl;

  /// Collective on devices: waits for the other ranks.
  Engine(World& world, const EngineOptions& options);
  /// For tests, with another implementation.
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// Collective. The host waits for all ranks, except for bounded and `padded` plans on devices of one node.
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options = {});

  /// Collective. As plan(), but the host waits in the ticket; the plan may be used once that is complete. Until then
  /// the routing must stay unchanged. On devices of one node, and between nodes of devices, it is complete on return.
  [[nodiscard]] Ticket<Plan> start_plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options = {});

  /// x: [tokens, hidden] in the row dtype. For fp8 rows also f32, bf16 or f16, which are quantised as they are sent. x
  /// must stay unchanged until the ticket is complete.
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options = {});

  /// expert_out: [plan.num_rows(), hidden] in the expert dtype, unchanged until the ticket is complete. Result:
  /// [tokens, hidden], the weighted sum of each token's rows (unweighted in `token_unique`); zeros for a token without
  /// rows.
  [[nodiscard]] Ticket<Tensor> combine(const Plan& plan, const ConstTensor& expert_out,
                                       const CombineOptions& options = {});

  /// grad_rows: [plan.num_rows(), hidden] in the expert dtype. Result: [tokens, hidden], the gradient of x, which is
  /// the unweighted sum of each token's rows.
  [[nodiscard]] Ticket<Tensor> dispatch_backward(const Plan& plan, const ConstTensor& grad_rows,
                                                 const CombineOptions& options = {});

  /// grad_out: [tokens, hidden] in the result dtype. expert_out: the tensor passed to combine; not read in
  /// `token_unique`.
  [[nodiscard]] Ticket<Gradients> combine_backward(const Plan& plan, const ConstTensor& grad_out,
                                                   const ConstTensor& expert_out, const CombineOptions& options = {});

  /// A buffer of [plan.num_rows(), hidden] in the expert dtype that makes combine zero-copy. Not collective.
  [[nodiscard]] Tensor expert_out(const Plan& plan) const;

  /// Memory that peers can address; rows and expert outputs in it need no copy. Not collective. On a device, the host
  /// waits for the engine's operations if the heap has only memory that they may still use. Released device memory may
  /// be handed out again at once: its next user must be on the same stream, or ordered after it.
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const;

  /// Copies between tensors of the same shape and dtype, in any memory. The host waits for the copy and, on a device,
  /// for the work on the engine's stream (in `padded`, except what tickets put there). Not collective.
  void copy(const ConstTensor& from, const Tensor& to) const;

  /// The memory that holds rows and results.
  [[nodiscard]] Memory memory() const;
  /// The stream on which operations run; null in host memory.
  [[nodiscard]] Stream stream() const;

  /// Throws the Error of a fault that has ended this engine's operations, including faults that a replayed graph found
  /// on the device. Does not wait.
  void check() const;
  /// On devices of one node: a word in pinned memory, which kernels can read too. 0 = no fault; it is set before the
  /// failed operation completes. Valid as long as the engine. Null on other engines, whose faults are only thrown by
  /// calls.
  [[nodiscard]] const std::uint32_t* fault_word() const;

  /// `padded` on devices of one node: continues without these ranks (lost, slow or no longer needed), and without those
  /// that were left out before. Collective over the ranks that stay, which all pass the same list; each waits on the
  /// host for at most twice the deadline.
  /// - A routing's entries for expert copies on these ranks are dropped; a token's other copies are unaffected.
  /// - No rank writes to these ranks' memory or waits for them. Their source_counts are 0 unless they arrive late.
  /// - A fault is cleared, even if no rank is named, and so is a dispatch that was not combined: the next operation is
  ///   a dispatch. Graphs that were captured before follow the change.
  /// - If it throws, because a rank that stays did not arrive, it may be called again with the same ranks or with more.
  /// - Afterwards the engine serves `padded` plans of maps that it has used before; anything else is
  ///   Error(unsupported).
  ///
  /// Needs more than half of the ranks that were together before, or half of them including the lowest; others get
  /// Error(minority), so that ranks which leave each other out don't both go on.
  ///
  /// A rank that was left out and arrives later reports that the others are missing. It changes none of their results,
  /// because its rows have slots of their own; but it may set its source_counts once more, so that experts compute rows
  /// in vain. To take it back, make a new engine.
  void leave_out(std::span<const RankId> ranks);
  /// The missing or lost rank that caused the last Error, also one of leave_out(): a candidate to leave out.
  [[nodiscard]] std::optional<RankId> missing() const;

  /// The options, with every default filled in.
  [[nodiscard]] const EngineOptions& options() const;

  /// For benchmarks and tests.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
