// The engine on devices of one node: operations are kernels on a stream, and ranks wait for each other in kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/cuda/memory.hpp"
#include "engine/cuda/deferred_blocks.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/cuda/events.hpp"
#include "engine/cuda/node_plan.hpp"
#include "engine/cuda/streams_in_use.hpp"
#include "engine/cuda/tag.hpp"
#include "engine/engine_impl.hpp"
#include "plan/cuda/map_tables.hpp"
#include "transport/cuda/barrier.hpp"
#include "transport/cuda/control.hpp"

namespace shunt {

class NodeEngine final : public Engine::Impl, public std::enable_shared_from_this<NodeEngine> {
 public:
  NodeEngine(World& engine_world, const EngineOptions& engine_options, std::shared_ptr<DeviceHeap> device_heap);
  ~NodeEngine() override;

  [[nodiscard]] Memory memory() const override { return Memory::on_device(heap->memory.device()); }
  [[nodiscard]] Stream stream() const override { return cuda_stream; }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  void copy(const ConstTensor& from, const Tensor& to) const override;
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) override;
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                      const DispatchOptions& dispatch_options) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Pull& pull) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Backward& backward) override;
  [[nodiscard]] Tensor expert_out(const PlanData& plan) const override;
  void check() const override;
  [[nodiscard]] const std::uint32_t* fault_word() const override { return &page_->fault.cause; }
  void leave_out(std::span<const RankId> ranks) override;
  [[nodiscard]] std::optional<RankId> missing() const override;

  // For this engine's plans and tickets.

  [[nodiscard]] bool is_capturing() const { return capture_id().has_value(); }
  /// Throws unless the host may wait for the stream.
  void require_no_capture(std::string_view operation) const;
  void copy_when_idle(void* to, const void* from, std::size_t bytes, const char* what) const {
    device::copy_when_idle(to, from, bytes, cuda_stream, what);
  }

  /// An operation on the stream. Operations of `padded` have a second half, which waits for the other ranks; it is
  /// launched when the ticket is waited for, or before the next operation.
  struct Submitted {
    struct Half {
      std::shared_ptr<const NodePlan> plan;
      OpKind kind;
      Tensor out;  ///< combine's result
    };
    std::optional<Half> second_half = std::nullopt;
    std::optional<std::uint64_t> capture = std::nullopt;   ///< the capture of the first half
    std::vector<std::shared_ptr<const void>> inputs = {};  ///< kept alive by the ticket
    device::Events::Event event = nullptr;
    std::uint64_t work = 0;
  };
  /// Launches the second half, if there is one. Throws Error(invalid_argument) if the stream's capture differs from the
  /// first half's.
  /// `callers`: the stream of the operation that comes next, which may be in a capture.
  void complete(Submitted& operation, Stream callers = nullptr);
  /// The same for a dropped ticket; instead of throwing, it makes the engine's next call throw.
  void complete_dropped(Submitted& operation);
  void wait(const Submitted& operation) const;

  std::shared_ptr<DeviceHeap> heap;
  cudaStream_t cuda_stream;

 private:
  /// An event on the stream, and the last work before it.
  struct Mark {
    device::Events::Event event;
    std::uint64_t work = 0;
  };
  /// The plan made by the last operation, and its capture.
  struct Planned {
    const NodePlan* plan = nullptr;
    std::optional<std::uint64_t> capture = std::nullopt;
  };

  // Construction.
  void exchange_control_blocks(World& engine_world);
  void check_connections(World& engine_world) const;
  [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);

  // Faults.
  [[nodiscard]] bool has_failed() const;
  /// Throws the Error of a recorded fault, after keep_what_peers_may_write().
  void throw_if_faulty() const;
  /// Withholds from reuse the memory that late ranks may still write: those for which this rank stopped waiting, or
  /// that were left out.
  void keep_what_peers_may_write() const noexcept;
  [[nodiscard]] bool has_left_out() const;
  /// Throws Error(minority) unless the ranks that would go on are more than half of those that last regrouped, or half
  /// including the first. So ranks that leave each other out don't both go on.
  void require_majority(const std::vector<bool>& now_left_out) const;

  // The stream.
  /// The id of the capture that an operation joins: that of the engine's stream, or else of the caller's.
  [[nodiscard]] std::optional<std::uint64_t> capture_id(Stream callers = nullptr) const;
  /// Begins an operation: the stream waits for the work that is on `after`.
  void start_after(Stream after);
  [[nodiscard]] std::shared_ptr<Pending> submit(Stream callers, std::initializer_list<ConstTensor> inputs,
                                                std::optional<Submitted::Half> second_half = std::nullopt);
  /// Throws if ranks were left out: all operations but those of `padded` need every rank.
  void require_all_ranks(std::string_view operation) const;
  void mark(Submitted& operation, Stream callers);
  void free_completed(const device::Events::Event& now, Stream callers);
  /// The record that publishes these blocks.
  [[nodiscard]] device::BarrierRecord record(device::Tag tag, const void* published = nullptr,
                                             const void* second = nullptr) const;
  void begin_barrier(device::Tag tag, const void* published, const void* second = nullptr) const;
  void end_barrier(device::Tag tag, const device::Poison& outputs) const;

  // Memory.
  /// Returns make(); if it throws for want of room, waits for the stream, frees deferred blocks and tries once more.
  template <class Make>
  auto with_room(const Make& make) const;
  /// A block for internal use, freed when it was released and the stream has passed its last use.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_hidden(std::size_t bytes) const;
  /// A block for long use, freed at once when released.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_kept(std::size_t bytes) const;
  [[nodiscard]] Tensor staging(std::string_view operation, const ConstTensor& like) const;
  /// A copy in staging memory.
  [[nodiscard]] ConstTensor staged(std::string_view operation, const ConstTensor& tensor) const;
  [[nodiscard]] bool is_symmetric(const ConstTensor& tensor) const;
  /// The tensor itself if kernels can read it, else a copy.
  [[nodiscard]] ConstTensor readable(std::string_view operation, const ConstTensor& tensor) const;
  /// The tensor itself if peers can access it, else a copy (publish) or an uninitialised substitute
  /// (writable_by_peers).
  [[nodiscard]] ConstTensor publish(std::string_view operation, const ConstTensor& tensor) const;
  [[nodiscard]] Tensor writable_by_peers(std::string_view operation, const Tensor& out) const;
  void copy_in(std::string_view operation, const ConstTensor& from, const Tensor& to) const;
  void deliver(const Tensor& received, const Tensor& out) const;

  // Plans.
  [[nodiscard]] const NodePlan& data_of(const Plan& plan) const { return static_cast<const NodePlan&>(*plan.data()); }
  [[nodiscard]] static std::shared_ptr<const NodePlan> held(const Plan& plan) {
    return std::static_pointer_cast<const NodePlan>(plan.data());
  }
  void check_plan_request(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) const;
  [[nodiscard]] std::shared_ptr<const device::MapTables> tables_of(const ExpertMap& map);
  [[nodiscard]] std::shared_ptr<NodePlan> make_plan(const Routing& routing, const ExpertMap& map,
                                                    const PlanOptions& plan_options);
  void bring_routing(NodePlan& plan, const Routing& routing) const;
  void narrow_experts(const NodePlan& plan) const;
  class PlanLaunches;

  // Rows.
  /// Launches the kernel that sends x. published: [2, ranks], device: addresses of every rank's rows and scales.
  void send(const NodePlan& plan, const ConstTensor& x, const ConstTensor& scales, std::byte* const* published) const;
  void zero_padding(const NodePlan& plan, const Tensor& rows) const;

  // `padded`.
  [[nodiscard]] std::shared_ptr<const PaddedBuffers> padded_buffers_of(const ExpertMap& map,
                                                                       const PlanOptions& plan_options);
  [[nodiscard]] std::shared_ptr<PaddedBuffers> make_padded_buffers(const ExpertMap& map,
                                                                   const PlanOptions& plan_options);
  /// The buffers of all plans and maps.
  [[nodiscard]] std::vector<std::shared_ptr<const PaddedBuffers>> all_padded_buffers() const;
  void check_turn(OpKind kind, const NodePlan& plan, Stream callers);
  [[nodiscard]] Ticket<Rows> dispatch_padded(const Plan& plan, const ConstTensor& x, Stream callers);
  [[nodiscard]] std::shared_ptr<Pending> combine_padded(const Pull& pull);

  std::uint64_t num_plans_ = 0;
  std::uint32_t next_sequence_ = 0;  // in the order of the engine's exchanges on the host
  std::optional<device::StreamInUse> stream_in_use_;
  device::Control control_{};
  std::shared_ptr<device::Events> events_ = std::make_shared<device::Events>();
  std::shared_ptr<device::DeferredBlocks> deferred_;
  mutable std::uint64_t work_ = 0;  // begun last; with_room() begins another
  Mark probe_;                      // no event: none pending
  Planned just_planned_;            // no plan: the last operation made none
  std::shared_ptr<HostPage> page_;
  std::unique_ptr<device::Watchdog::Watch> watch_;
  // Peers write it: at barriers of regroupings and, behind that, of operations.
  std::shared_ptr<std::byte> control_block_;
  std::shared_ptr<std::byte> own_block_;  // only this rank's kernels use it
  std::map<std::uint64_t, std::shared_ptr<const device::MapTables>> maps_;

  // `padded`.
  /// A dispatch that awaits its combine.
  struct Dispatched {
    std::shared_ptr<const PaddedBuffers> buffers;
    std::int64_t num_tokens;
    std::int32_t topk;
    std::optional<std::uint64_t> capture;
  };
  struct KnownBuffers {
    std::shared_ptr<const PaddedBuffers> buffers;
    std::uint64_t last_plan;
  };
  std::map<std::uint64_t, KnownBuffers> padded_;  // by PaddedBuffers::hash_of()
  std::uint64_t num_padded_plans_ = 0;
  std::uint64_t num_padded_sets_ = 0;
  /// Evicted from padded_. Peers may still read their expert_out, so they are freed after the next collective on the
  /// host once no plan uses them.
  std::vector<std::shared_ptr<const PaddedBuffers>> retired_buffers_;
  std::optional<Dispatched> dispatched_;
  std::weak_ptr<Submitted> half_done_;            // its second half is not launched yet
  bool has_lost_half_ = false;                    // a ticket was dropped after its capture had ended
  device::Control elsewhere_{};                   // barriers of regroupings
  unsigned long long* furthest_round_ = nullptr;  // device
  std::vector<bool> is_left_out_;
  std::vector<bool> was_left_out_;  // when ranks last regrouped
  std::uint64_t num_regroupings_ = 0;
};

}  // namespace shunt
