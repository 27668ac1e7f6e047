// What a DeviceEngine holds and its operations share.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/cuda/events.hpp"
#include "engine/cuda/heap_impl.hpp"
#include "engine/cuda/resting_blocks.hpp"
#include "engine/cuda/tag.hpp"
#include "engine/tensor_checks.hpp"
#include "plan/cuda/map_tables.hpp"
#include "shunt/device_engine.hpp"
#include "transport/cuda/control.hpp"

namespace shunt {

struct DevicePlanData {
  std::shared_ptr<std::byte> block;
  std::shared_ptr<std::byte> clamped;  // `token_unique` with a capacity: the routing without what it drops
  std::shared_ptr<std::byte> copies;   // of a map with replicas: the copy that each entry goes to
  device::PlanShape shape;
  device::PlanArrays arrays;
  DevicePlanOptions options;
  std::int64_t num_rows;  // exact, or the bound
  std::uint64_t hash;     // equal on all ranks
  std::shared_ptr<const DeviceEngine::Impl> engine;
  std::shared_ptr<const device::MapTables> map;  // kept for graphs that plan anew
};

struct DeviceEngine::Impl : std::enable_shared_from_this<DeviceEngine::Impl> {
  Impl(World& world, const DeviceHeap& device_heap, const DeviceEngineOptions& engine_options);
  ~Impl();

  [[nodiscard]] std::int32_t device() const { return heap->memory.device(); }
  [[nodiscard]] HostPage& page() const { return *page_; }
  [[nodiscard]] device::Watchdog::Watch& watch() const { return *watch_; }
  /// Rows are fp8 and have scales.
  [[nodiscard]] bool has_scales() const { return checks().has_scales(); }
  [[nodiscard]] std::int64_t num_scales() const { return checks().num_scales(); }

  /// Throws the Error of a fault that the device has recorded. Before, what peers may still write is kept from others.
  void throw_if_faulty() const;
  [[nodiscard]] bool has_failed() const;
  /// Of the stream; none unless it is captured.
  [[nodiscard]] std::optional<std::uint64_t> capture_id() const;
  [[nodiscard]] bool is_capturing() const { return capture_id().has_value(); }
  /// Copies between host and device go through queues that ranks of a process share, so nothing may wait there: the
  /// host waits for the stream first.
  void copy_when_idle(void* to, const void* from, std::size_t bytes, const char* what) const;

  /// The engine's stream goes on when `after` has come here.
  void start_after(Stream after);
  [[nodiscard]] std::shared_ptr<DevicePending> pending();

  /// With blocks that peers may use from the meeting on.
  [[nodiscard]] device::Note note(device::Tag tag, const void* shown = nullptr, const void* second = nullptr) const;
  void meet(device::Tag tag, const void* shown = nullptr, const void* second = nullptr) const;
  /// Or a part of it, where nothing is shown.
  void meet(device::Tag tag, device::MeetingPart part) const;

  /// The next operation may be its dispatch.
  void set_just_planned(const DevicePlanData& plan) { just_planned_ = {&plan, capture_id()}; }
  /// A dispatch that is captured now finds the plan's rows shown to all.
  [[nodiscard]] bool are_rows_shown(const DevicePlanData& plan) const;

  [[nodiscard]] std::shared_ptr<const device::MapTables> tables_of(const ExpertMap& map);

  // Checks of what a caller brings; each throws Error(invalid_argument).
  [[nodiscard]] const DevicePlanData& check_plan(const DevicePlan& plan, std::string_view operation) const;
  void check_tensor(std::string_view operation, std::string_view name, const ConstTensor& tensor, DType dtype,
                    std::int64_t rows) const {
    checks().tensor(operation, name, tensor, dtype, rows, options.hidden);
  }
  [[nodiscard]] TensorChecks checks() const { return {RankId(self), options.dtype, options.hidden, true}; }

  /// A new block in the heap, or `given` if the caller brought one.
  [[nodiscard]] Tensor output(std::string_view operation, const Tensor& given, DType dtype, std::int64_t rows) const;
  /// Empty unless rows have scales.
  [[nodiscard]] Tensor output_scales(const Tensor& given, std::int64_t rows) const;
  /// `out` itself, or a block in its stead that peers can write.
  [[nodiscard]] Tensor writable_by_peers(std::string_view operation, const Tensor& out) const;
  void deliver(const Tensor& received, const Tensor& out) const;
  /// A block that no caller sees. It is given back when it is let go of and the stream has passed its last use.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_hidden(std::size_t bytes) const;
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows) const { return allocate(dtype, rows, options.hidden); }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const;
  [[nodiscard]] bool is_symmetric(const ConstTensor& tensor) const;
  /// The rows where peers can read them: through a copy if need be.
  [[nodiscard]] ConstTensor show_to_peers(std::string_view operation, const ConstTensor& rows) const;

  DeviceTicket<Tensor> pull(OpKind kind, const DevicePlan& plan, const ConstTensor& rows,
                            const DeviceCombineOptions& pull_options);
  /// Starts the kernel that sends x. shown: [2, ranks], device: every rank's rows, and their scales.
  void send(const DevicePlanData& plan, const ConstTensor& x, const ConstTensor& scales, std::byte* const* shown) const;
  void zero_padding(const DevicePlanData& plan, const Tensor& rows) const;

  std::shared_ptr<DeviceHeap::Impl> heap;
  DeviceEngineOptions options;  // every default filled in
  Topology topology;
  std::int32_t self;
  std::uint64_t num_plans = 0;
  cudaStream_t stream = nullptr;
  device::Control control{};
  std::shared_ptr<device::Events> events = std::make_shared<device::Events>();
  std::shared_ptr<device::RestingBlocks> resting;

  /// Ranks that come late, after this one has given up or left them out, find all they waited for and write where they
  /// were told to.
  void keep_what_peers_may_write() const noexcept;

 private:
  /// A mark on the stream, and the last work before it.
  struct Mark {
    device::Events::Event event;
    std::uint64_t work = 0;
  };

  /// The plan that the last operation made, and the capture that holds it.
  struct Planned {
    const DevicePlanData* plan = nullptr;
    std::optional<std::uint64_t> capture = std::nullopt;
  };

  void make_control(World& world);
  [[nodiscard]] Tensor staging(std::string_view operation, DType dtype, std::int64_t rows, std::int64_t cols) const;
  /// Calls make(); if there is no room, once more when the stream has passed all that rests.
  template <class Make>
  auto with_room(const Make& make) const;
  void give_back_what_is_over(const device::Events::Event& now);

  mutable std::uint64_t work_ = 0;  // the last that was begun; making room begins anew
  Mark probe_;                      // no event: nobody looks
  Planned just_planned_;            // no plan: it was another operation
  std::shared_ptr<HostPage> page_;
  std::unique_ptr<device::Watchdog::Watch> watch_;
  std::shared_ptr<std::byte> control_block_;  // what peers write
  std::shared_ptr<std::byte> own_block_;      // what only this rank's kernels touch
  std::map<std::uint64_t, std::shared_ptr<const device::MapTables>> maps_;
};

}  // namespace shunt
