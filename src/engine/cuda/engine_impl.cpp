#include "engine/cuda/engine_impl.hpp"

#include <cstring>
#include <limits>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/fault.hpp"
#include "engine/world_impl.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/zero_padding.hpp"
#include "transport/cuda/meeting.hpp"

namespace shunt {
namespace {

/// Maps whose tables are kept without a plan that uses them.
constexpr std::size_t kMostMaps = 16;

class PendingOperation final : public DevicePending {
 public:
  PendingOperation(std::shared_ptr<const DeviceEngine::Impl> engine, device::Events::Event event, std::uint64_t work)
      : engine_(std::move(engine)), event_(std::move(event)), work_(work) {}

  void wait() override {
    if (engine_->is_capturing())
      fail(ErrorCode::invalid_argument, "rank {}: the host can't wait for what is being captured", engine_->self);
    device::check(cudaEventSynchronize(event_.get()), "wait for an operation");
    engine_->throw_if_faulty();
    engine_->resting->complete(work_);
  }
  void wait_on(Stream stream) override {
    if (stream != engine_->stream)
      device::check(cudaStreamWaitEvent(stream, event_.get(), 0), "let a stream wait for an operation");
  }

 private:
  std::shared_ptr<const DeviceEngine::Impl> engine_;
  device::Events::Event event_;
  std::uint64_t work_;
};

/// In a block that allocate(bytes) gives.
template <class Allocate>
Tensor make_tensor(DType dtype, std::int64_t rows, std::int64_t cols, const Allocate& allocate) {
  Tensor tensor{nullptr, dtype, rows, cols, nullptr};
  const std::shared_ptr<std::byte> block = allocate(tensor.bytes());
  tensor.data = block.get();
  tensor.owner = block;
  return tensor;
}

void check_summable(std::int32_t rank, const char* name, DType dtype) {
  if (dtype != f32 && dtype != bf16 && dtype != f16)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: {} is {}, expected f32, bf16 or f16", rank, name,
         to_string(dtype));
}

void check_sms(std::int32_t rank, std::int32_t sms, std::int32_t device) {
  if (sms == 0) return;
  int all = 0;
  device::check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device), "count multiprocessors");
  if (sms < 0 || sms > all)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: sms is {}, expected 0 to {}", rank, sms, all);
  if (!device::has_bulk_copies())
    fail(ErrorCode::unsupported,
         "rank {}: device engine: sms is {}, but device {} has no bulk copies (compute capability 9.0), or this build "
         "no code for them",
         rank, sms, device);
}

}  // namespace

DeviceEngine::Impl::Impl(World& world, const DeviceHeap& device_heap, const DeviceEngineOptions& engine_options)
    : heap(device_heap.impl()),
      options(engine_options),
      topology(world.topology()),
      self(world.rank().value),
      resting(std::make_shared<device::RestingBlocks>(
          [lender = heap](std::byte* block) { lender->memory.release(block); })) {
  constexpr std::int64_t kMostHidden = std::int64_t{1} << 31;
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  if (world.size() != heap->num_ranks)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: the world has {} ranks, the heap {}", self, world.size(),
         heap->num_ranks);
  if (world.impl()->group->members != heap->members)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: the heap was made by other ranks than the world's",
         self);
  if (options.hidden < 1 || options.hidden > kMostHidden)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: hidden is {}, expected 1 to {}", self, options.hidden,
         kMostHidden);
  if (options.max_tokens < 0 || options.max_tokens > kMostTokens)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: max_tokens is {}, expected 0 to {}", self,
         options.max_tokens, kMostTokens);
  if (options.max_experts < 1)
    fail(ErrorCode::invalid_argument, "rank {}: device engine: max_experts is {}, expected at least 1", self,
         options.max_experts);
  if (!options.expert_dtype) options.expert_dtype = options.dtype == fp8_e4m3 ? bf16 : options.dtype;
  if (!options.result_dtype) options.result_dtype = options.expert_dtype;
  if (!options.wire_dtype) options.wire_dtype = options.expert_dtype;
  if (!options.deadline) options.deadline = world.impl()->fabric->environment().deadline;
  options.deadline = Environment::checked("device engine: deadline", *options.deadline);
  check_summable(self, "expert_dtype", *options.expert_dtype);
  check_summable(self, "result_dtype", *options.result_dtype);
  check_summable(self, "wire_dtype", *options.wire_dtype);
  const device::OnDevice scope(device());
  check_sms(self, options.sms, device());
  stream = options.stream ? options.stream : heap->stream.get();
  page_ = heap->take_page();
  watch_ = std::make_unique<device::Watchdog::Watch>(heap->watchdog, world.impl(), page_->vigil);
  make_control(world);
}

DeviceEngine::Impl::~Impl() {
  // What is under way ends by itself, when a rank is lost or at the deadline at the latest; its memory must not be
  // handed out before.
  (void)cudaStreamSynchronize(stream);
  if (has_failed()) keep_what_peers_may_write();
  resting->complete(std::numeric_limits<std::uint64_t>::max());
}

void DeviceEngine::Impl::make_control(World& world) {
  struct Introduction {
    std::uint64_t agreement;
    std::uint64_t control_offset;
  };
  const auto num_ranks = static_cast<std::size_t>(heap->num_ranks);
  control.self = self;
  control.shape = {heap->num_ranks, options.max_experts + heap->num_ranks};
  control_block_ = heap->allocate(control.shape.bytes());
  const std::size_t own_bytes = 4 * num_ranks * sizeof(void*) + sizeof(device::Progress);
  own_block_ = heap->allocate(own_bytes);
  device::check(cudaMemsetAsync(control_block_.get(), 0, control.shape.bytes(), stream), "clear signals");
  device::check(cudaMemsetAsync(own_block_.get(), 0, own_bytes, stream), "clear progress");
  device::check(cudaStreamSynchronize(stream), "clear signals");

  const Introduction mine{Hasher()
                              .add(static_cast<std::uint64_t>(options.hidden))
                              .add(static_cast<std::uint64_t>(options.dtype))
                              .add(static_cast<std::uint64_t>(*options.expert_dtype))
                              .add(static_cast<std::uint64_t>(*options.result_dtype))
                              .add(static_cast<std::uint64_t>(*options.wire_dtype))
                              .add(static_cast<std::uint64_t>(options.reduction))
                              .add(static_cast<std::uint64_t>(options.max_tokens))
                              .add(static_cast<std::uint64_t>(options.max_experts))
                              .value(),
                          heap->memory.offset_of(control_block_.get())};
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<std::byte*> pointers(2 * num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    Introduction peer;
    std::memcpy(&peer, all[rank].data(), sizeof(peer));
    if (peer.agreement != mine.agreement)
      fail(ErrorCode::mismatch, "ranks {} and {} make device engines with different options", self, rank);
    pointers[rank] = heap->memory.base_of(rank);
    pointers[num_ranks + rank] = pointers[rank] + peer.control_offset;
  }
  auto** words = reinterpret_cast<std::byte**>(own_block_.get());
  copy_when_idle(words, pointers.data(), pointers.size() * sizeof(void*), "tell the device of its peers");
  control.heaps = words;
  control.blocks = words + num_ranks;
  control.shown = words + 2 * num_ranks;
  control.progress = reinterpret_cast<device::Progress*>(words + 4 * num_ranks);
  control.fault = &page_->fault;
  control.vigil = page_->vigil;
  control.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(*options.deadline).count());
}

bool DeviceEngine::Impl::has_failed() const { return device::cause_of(page_->fault) != device::FaultRecord::none; }

void DeviceEngine::Impl::keep_what_peers_may_write() const noexcept {
  device::SymmetricHeap& memory = heap->memory;
  memory.keep(memory.offset_of(control_block_.get()));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone) return;
  // What is shown at a meeting is used until the next, and all came to the last but one.
  for (const std::uint32_t meeting : {0u, 1u}) {
    device::Note note{};
    const std::byte* const said = control_block_.get() + control.shape.note(meeting, self);
    if (cudaStreamSynchronize(stream) != cudaSuccess) return;
    if (cudaMemcpyAsync(&note, said, sizeof(note), cudaMemcpyDefault, stream) != cudaSuccess) return;
    if (cudaStreamSynchronize(stream) != cudaSuccess) return;
    for (const std::uint64_t offset : {note.offset, note.second_offset})
      if (offset != 0) memory.keep(offset);
  }
}

void DeviceEngine::Impl::throw_if_faulty() const {
  if (has_failed()) keep_what_peers_may_write();
  device::throw_if_faulty(page_->fault, *watch_, RankId(self), *options.deadline);
}

std::optional<std::uint64_t> DeviceEngine::Impl::capture_id() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  device::check(cudaStreamGetCaptureInfo(stream, &status, &id), "ask whether a stream is captured");
  return status == cudaStreamCaptureStatusNone ? std::nullopt : std::optional<std::uint64_t>(id);
}

void DeviceEngine::Impl::copy_when_idle(void* to, const void* from, std::size_t bytes, const char* what) const {
  device::check(cudaStreamSynchronize(stream), what);
  device::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), what);
  device::check(cudaStreamSynchronize(stream), what);
}

void DeviceEngine::Impl::start_after(Stream after) {
  throw_if_faulty();
  work_ = resting->begin_work();
  if (after && after != stream)
    device::check(cudaStreamWaitEvent(stream, events->record(after).get(), 0), "wait for the caller's stream");
  just_planned_ = {};
}

std::shared_ptr<DevicePending> DeviceEngine::Impl::pending() {
  const device::Events::Event event = events->record(stream);
  give_back_what_is_over(event);
  return std::make_shared<PendingOperation>(shared_from_this(), event, work_);
}

void DeviceEngine::Impl::give_back_what_is_over(const device::Events::Event& now) {
  if (resting->empty() || is_capturing()) return;
  if (!probe_.event) {
    probe_ = {now, work_};
    return;
  }
  const cudaError_t status = cudaEventQuery(probe_.event.get());
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return;
  }
  device::check(status, "look how far a stream has come");
  if (!has_failed()) resting->complete(probe_.work);
  probe_ = {};
}

device::Note DeviceEngine::Impl::note(device::Tag tag, const void* shown, const void* second) const {
  const auto offset = [&](const void* block) { return block ? heap->memory.offset_of(block) : 0; };
  return {offset(shown), offset(second), tag.packed()};
}

void DeviceEngine::Impl::meet(device::Tag tag, const void* shown, const void* second) const {
  device::launch_meeting(control, note(tag, shown, second), stream);
}

void DeviceEngine::Impl::meet(device::Tag tag, device::MeetingPart part) const {
  device::launch_meeting(control, note(tag), stream, part);
}

bool DeviceEngine::Impl::are_rows_shown(const DevicePlanData& plan) const {
  return is_given(plan.options.rows) && just_planned_.plan == &plan && just_planned_.capture &&
         just_planned_.capture == capture_id();
}

template <class Make>
auto DeviceEngine::Impl::with_room(const Make& make) const {
  try {
    return make();
  } catch (const Error&) {
    if (resting->empty() || is_capturing()) throw;
  }
  device::check(cudaStreamSynchronize(stream), "wait for room");
  throw_if_faulty();
  resting->complete(work_);
  work_ = resting->begin_work();  // what asks for room has not been put on the stream yet
  return make();
}

std::shared_ptr<const device::MapTables> DeviceEngine::Impl::tables_of(const ExpertMap& map) {
  if (const auto known = maps_.find(map.hash()); known != maps_.end()) return known->second;
  if (is_capturing())
    fail(ErrorCode::invalid_argument,
         "rank {}: plan: this map is new to the engine; plan with it once before it is captured", self);
  const device::MapWords words(map, topology, options.reduction == Reduction::flat);
  const std::size_t bytes = words.words().size() * sizeof(std::int32_t);
  const auto block = with_room([&] { return heap->allocate(bytes); });
  copy_when_idle(block.get(), words.words().data(), bytes, "tell the device of a map");
  // The stream is idle: tables without a plan are used by nobody.
  if (maps_.size() >= kMostMaps) std::erase_if(maps_, [](const auto& known) { return known.second.use_count() == 1; });
  const auto tables = std::make_shared<device::MapTables>(words.at(reinterpret_cast<std::int32_t*>(block.get())));
  return maps_[map.hash()] = {tables.get(), [tables, block](const device::MapTables*) {}};
}

const DevicePlanData& DeviceEngine::Impl::check_plan(const DevicePlan& plan, std::string_view operation) const {
  if (!plan.data()) fail(ErrorCode::invalid_argument, "rank {}: {}: the plan is empty", self, operation);
  if (plan.data()->engine.get() != this)
    fail(ErrorCode::invalid_argument, "rank {}: {}: the plan was made by another engine", self, operation);
  return *plan.data();
}

std::shared_ptr<std::byte> DeviceEngine::Impl::allocate_hidden(std::size_t bytes) const {
  return with_room(
      [&] { return resting->take(bytes, [&](std::size_t wanted) { return heap->memory.allocate(wanted); }); });
}

Tensor DeviceEngine::Impl::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  return make_tensor(dtype, rows, cols,
                     [&](std::size_t bytes) { return with_room([&] { return heap->allocate(bytes); }); });
}

Tensor DeviceEngine::Impl::staging(std::string_view operation, DType dtype, std::int64_t rows,
                                   std::int64_t cols) const {
  if (is_capturing())
    fail(ErrorCode::invalid_argument,
         "rank {}: {}: what is captured needs tensors that came from DeviceHeap::allocate: a copy's memory would not "
         "live as long as the graph",
         self, operation);
  return make_tensor(dtype, rows, cols, [&](std::size_t bytes) { return allocate_hidden(bytes); });
}

Tensor DeviceEngine::Impl::output(std::string_view operation, const Tensor& given, DType dtype,
                                  std::int64_t rows) const {
  if (!is_given(given)) return allocate(dtype, rows);
  check_tensor(operation, "out", given, dtype, rows);
  return given;
}

Tensor DeviceEngine::Impl::output_scales(const Tensor& given, std::int64_t rows) const {
  checks().out_scales(given, rows);
  return is_given(given) || !has_scales() ? given : allocate(f32, rows, num_scales());
}

Tensor DeviceEngine::Impl::writable_by_peers(std::string_view operation, const Tensor& out) const {
  return is_symmetric(out) ? out : staging(operation, out.dtype, out.rows, out.cols);
}

void DeviceEngine::Impl::deliver(const Tensor& received, const Tensor& out) const {
  if (received.data != out.data) device::launch(device::CopyBytes{received.data, out.data, out.bytes()}, stream);
}

bool DeviceEngine::Impl::is_symmetric(const ConstTensor& tensor) const {
  // Kernels rely on what the heap aligns its blocks to.
  return heap->memory.contains(tensor.data, tensor.bytes()) &&
         heap->memory.offset_of(tensor.data) % device::SymmetricHeap::kAlignment == 0;
}

ConstTensor DeviceEngine::Impl::show_to_peers(std::string_view operation, const ConstTensor& rows) const {
  if (is_symmetric(rows)) return rows;
  const Tensor copy = staging(operation, rows.dtype, rows.rows, rows.cols);
  device::launch(device::CopyBytes{rows.data, copy.data, rows.bytes()}, stream);
  return copy;
}

void DeviceEngine::Impl::zero_padding(const DevicePlanData& plan, const Tensor& rows) const {
  if (plan.shape.unique || plan.options.alignment == 1) return;
  device::launch(device::ZeroPadding{.rows = rows.data,
                                     .offsets = plan.arrays.expert_offsets,
                                     .counts = plan.arrays.expert_counts,
                                     .num_experts = plan.shape.num_local,
                                     .row_bytes = rows.row_bytes(),
                                     .stop = &control.progress->fault},
                 stream);
}

}  // namespace shunt
