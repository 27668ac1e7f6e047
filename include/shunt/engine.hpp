// Plans shuffles and carries them out.
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
  /// Experts within a rank, ranks within a node, nodes. Depends on the map and the topology.
  tree,
  /// Logical experts in ascending order. Independent of the map; not for `token_unique`.
  flat,
};

/// What travels with each row besides fp8 scales.
struct Companions {
  bool ids = false;
  bool weights = false;
};

/// How rows of devices travel between nodes.
enum class DeviceNetwork : std::uint8_t {
  world,  ///< through pinned memory of the host, by the network that joined the world
  nccl,   ///< by NCCL, from device to device; its library is looked for when it is needed. All ranks the same.
};

/// What only engines on devices have.
struct DeviceOptions {
  /// This rank's CUDA device. −1: by the rank's place among those of its machine, so that each has a device of its own
  /// where there are enough.
  std::int32_t index = -1;
  /// Of each rank; the same on all. The first engine of a world on a device allocates so much, and the world keeps it:
  /// for plans, outputs and whatever Engine::allocate gives. A later engine can't ask for more.
  std::size_t heap_bytes = std::size_t{1} << 30;
  /// Tokens that any rank brings to a plan, at most.
  std::int64_t max_tokens = 4096;
  /// Physical experts that a map has, at most.
  std::int32_t max_experts = 1024;
  /// Within a node, operations run on this stream, one after the other; null: on the heap's, which this rank's engines
  /// share, so that all ranks call operations of all of them in the same order. Ranks of a process never share a
  /// stream, so CUDA's default stream will not do. Streams of a process that operations run on must not be more than
  /// CUDA_DEVICE_MAX_CONNECTIONS on a device, or they could wait for each other until the deadline:
  /// Error(unsupported). The stream outlives the engine, its plans and its tickets. Where it is confined to few
  /// multiprocessors (a green context), they have room for a waiting block of each rank that shares them, of 512
  /// threads (`padded`: 1024), and for one that does not wait.
  Stream stream = nullptr;
  /// Dispatch, combine and dispatch_backward carry rows on at most so many multiprocessors, so that others are left to
  /// what runs beside; 0: on all. Each carries about 60 GB/s (docs/performance.md). Planning, `padded`,
  /// combine_backward, fp8, more than 32 choices per token, and rows, x or results that are not aligned to 16 bytes are
  /// not limited: for that, or where ranks share a device, let `stream` be one of a green context. Compute
  /// capability 9.0 or later. May differ between ranks.
  std::int32_t sms = 0;

  // Between nodes.
  DeviceNetwork network = DeviceNetwork::world;
  /// Rows travel between nodes in batches that one kernel packs or unpacks, of at most so many bytes, or one row. Each
  /// way has so many of them in pinned memory; for NCCL, one each way for every rank, in device memory.
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::int32_t num_batches = 16;
};

struct EngineOptions {
  /// Elements per row, at least 1.
  std::int64_t hidden = 0;
  /// Of dispatched rows.
  DType dtype = bf16;
  /// Of expert outputs and of gradients of rows: f32, bf16 or f16. By default `dtype`, or bf16 for fp8 rows.
  std::optional<DType> expert_dtype = std::nullopt;
  /// Of combine's result and of gradients of tokens: f32, bf16 or f16. By default `expert_dtype`.
  std::optional<DType> result_dtype = std::nullopt;
  /// What sums are rounded to where they cross from node to node: f32, bf16 or f16. By default `expert_dtype`.
  std::optional<DType> wire_dtype = std::nullopt;
  /// What sums are rounded to where they cross from rank to rank: f32, which is exact and the default, or the expert
  /// dtype, which is Error(unsupported) so far unless it is f32.
  std::optional<DType> rank_dtype = std::nullopt;
  Reduction reduction = Reduction::tree;
  Companions companions = {};
  /// An operation that takes longer fails; by default SHUNT_DEADLINE_MS.
  std::optional<std::chrono::milliseconds> deadline = std::nullopt;
  /// Where the routings of this engine's plans are recorded, by default nowhere. May differ between ranks.
  TraceTarget trace = {};
  /// Names the engine in errors, such as the layer that it serves. May differ between ranks.
  std::string name = {};
  /// Rows and results are on a GPU; by default they are in host memory. All ranks the same.
  std::optional<DeviceOptions> device = std::nullopt;
};

struct DispatchOptions {
  /// [tokens, scales_per_row(hidden)] f32; required when x itself is fp8, forbidden otherwise.
  ConstTensor scales = {};
  /// [plan.num_rows(), hidden] for the rows. Written without a copy where it came from Engine::allocate and, in host
  /// memory, the engine carries no companions or scales and the layout is not `padded`; through one copy otherwise.
  /// Forbidden if the plan was given rows, and for `padded` on devices.
  Tensor out = {};
  /// fp8 rows only, else forbidden: [plan.num_rows(), scales_per_row(hidden)] f32 for their scales, as `out`.
  Tensor out_scales = {};
  /// On devices: the operation starts when what was put on this stream before is done; null: on the engine's stream
  /// alone.
  Stream stream = nullptr;
};

/// Of combine, and of the gradients.
struct CombineOptions {
  /// [tokens, hidden] in the result dtype; any memory of the engine's kind. Not for combine_backward.
  Tensor out = {};
  /// As in DispatchOptions.
  Stream stream = nullptr;
};

/// Moves rows between ranks: of host memory, or with EngineOptions::device of GPUs, within a node or between nodes.
/// Same calls, same slots, same bits. What a kind of memory can't do is Error(unsupported); docs/errors.md has the
/// table.
///
/// Light: one per layer is fine (between nodes of devices one per shape is better, as each pins its batches). All ranks
/// make their engines in the same order with the same options, and call each engine's operations in the same order;
/// order between engines is free, so ranks that wait for each other in different engines are told so by the deadline
/// only. Operations start at once and proceed without further calls. An Error(invalid_argument) is thrown before
/// anything is sent, and the call may be repeated.
///
/// Inputs may lie anywhere and have any row stride; what lies elsewhere than the engine's memory, or can't be read
/// where it is, is copied first. Memory from Engine::allocate saves copies.
///
/// On devices of one node, operations are put on the engine's stream and nothing waits on the host, except in exact
/// plans, in plans with a map that is new to the engine, where tickets are waited for, for memory of earlier operations
/// where the heap has no other, and for inputs in host memory. So operations can be captured in a CUDA graph, if the
/// engine has planned with the same map before, plans have a bound (or are `padded`) and rows that peers read or write
/// came from Engine::allocate. Capture with cudaStreamCaptureModeThreadLocal; replay on the engine's stream, on all
/// ranks equally often. Plans, inputs and outputs outlive the graph and its last replay. A capture that one rank gives
/// up is repeated by all, as plans are counted. No engine ends while its stream is captured. Memory that is let go of
/// while an operation may use it is another engine's at once: hold outputs until their operation is complete.
///
/// Between nodes of devices the host takes part: nothing can be captured, and tickets' wait_on() makes the host wait.
///
/// Ranks of one process on one device share CUDA's queues for copies between host and device. A copy that stands behind
/// an operation on a stream holds up the other ranks' copies, so there wait for the ticket first, then copy.
///
/// `padded` on devices of one node is for decoding: making a plan launches and exchanges nothing once the map is known.
/// Dispatch sends, its ticket's wait_on() receives; combine tells the others that expert_out(plan) is written, and its
/// ticket's wait_on() waits for theirs and sums. Dispatch and combine take turns, one pair under way per engine. Rows,
/// counts and expert_out(plan) are the engine's own, the same for all its plans with a map, and valid until the next
/// dispatch; expert_out() stays unchanged until then, as others may still read it when a combine is complete here, and
/// ranks end together after the last one (World::barrier()). A combine takes the plan of the last dispatch, or one like
/// it. In a CUDA graph, tickets are waited for or dropped while the call is captured. An expert that is out of range,
/// or that the token named before, is dropped as if it were −1: rows are on their way before anybody could have been
/// told.
///
/// A rank that does not come in time, is lost or calls something else is a fault, and so is a routing that makes no
/// sense, on all ranks: the operation and all later ones of the engine fail with an Error that names it. On a device
/// outputs are poisoned then (all bytes 0xff, which is NaN; counts are 0); the device, its context and other engines
/// stay as they are, and memory that ranks which come late may still write is handed to nobody else.
class Engine {
 public:
  struct Impl;

  /// Collective for devices, where it waits for them.
  Engine(World& world, const EngineOptions& options);
  /// For tests: with other memory.
  explicit Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// Collective. The host waits for all ranks, but for bounded and `padded` plans on devices of one node.
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options = {});

  /// x: [tokens, hidden] in the row dtype; for fp8 rows also f32, bf16 or f16, quantised on the way. x must stay
  /// unchanged until the ticket is complete.
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options = {});

  /// expert_out: [plan.num_rows(), hidden] in the expert dtype, unchanged until the ticket is complete. Result:
  /// [tokens, hidden], for each token the weighted sum of its rows (unweighted in `token_unique`); zeros for a token
  /// without rows.
  [[nodiscard]] Ticket<Tensor> combine(const Plan& plan, const ConstTensor& expert_out,
                                       const CombineOptions& options = {});

  /// grad_rows: [plan.num_rows(), hidden] in the expert dtype. Result: [tokens, hidden] gradient of x, the unweighted
  /// sum of each token's rows.
  [[nodiscard]] Ticket<Tensor> dispatch_backward(const Plan& plan, const ConstTensor& grad_rows,
                                                 const CombineOptions& options = {});

  /// grad_out: [tokens, hidden] in the result dtype; expert_out: what combine was given, not read in `token_unique`.
  [[nodiscard]] Ticket<Gradients> combine_backward(const Plan& plan, const ConstTensor& grad_out,
                                                   const ConstTensor& expert_out, const CombineOptions& options = {});

  /// A buffer of [plan.num_rows(), hidden] in the expert dtype that makes combine zero-copy. Not collective.
  [[nodiscard]] Tensor expert_out(const Plan& plan) const;

  /// Memory that peers can address, in which rows and expert outputs need no copy. Not collective. On a device, the
  /// host waits for the engine's operations where the heap has no room but what they may still use.
  /// Device memory that is let go of may be handed out again at once: whoever uses it next must do so on the same
  /// stream, or after it.
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const;

  /// Copies a tensor of the same shape and dtype, from and to any memory. The host waits, on a device for what is on
  /// the engine's stream too (of `padded`, not for what tickets put there). Not collective.
  void copy(const ConstTensor& from, const Tensor& to) const;

  /// Where rows and results are.
  [[nodiscard]] Memory memory() const;
  /// The stream that operations run on; null in host memory.
  [[nodiscard]] Stream stream() const;

  /// Throws the Error of a fault that has ended this engine's operations, on the device too, where a replayed graph may
  /// have found it. Does not wait.
  void check() const;
  /// On devices of one node: a word in pinned memory, which kernels can read too; 0 while there is no fault. It is set
  /// before the operation that failed is over. Valid as long as the engine. Null elsewhere: operations fail there in
  /// calls only.
  [[nodiscard]] const std::uint32_t* fault_word() const;

  /// `padded` on devices of one node: goes on without these ranks, be they lost, slow or no longer needed, and without
  /// those that were left out before. What routings send to a copy of an expert there is dropped, and changes nothing
  /// about a token's other copies; nobody writes to these ranks' memory or waits for them, and source_counts of theirs
  /// are 0 unless they come later. Collective over the ranks that stay, which bring the same list; each waits on the
  /// host, at most for twice the deadline. A fault is forgotten, even where no rank is named, and so is a dispatch that
  /// was not combined: a dispatch comes next. Graphs that were captured before follow. If it throws, as one that stays
  /// did not come, it may be called again, with the same ranks or with more. From then on the engine serves `padded`
  /// plans of maps that it knew before; the rest is Error(unsupported).
  ///
  /// A rank that is left out and comes later reports that others don't come. It changes no results of theirs: its rows
  /// have their own places. But it may set its source_counts once more, so that experts compute rows in vain. To take
  /// it back, make a new engine.
  void leave_out(std::span<const RankId> ranks);
  /// The rank that did not come, or is lost, where that is the fault of the last Error, also of leave_out(): one of
  /// those to leave out.
  [[nodiscard]] std::optional<RankId> missing() const;

  /// With every default filled in.
  [[nodiscard]] const EngineOptions& options() const;

  /// For benchmarks and tests.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
