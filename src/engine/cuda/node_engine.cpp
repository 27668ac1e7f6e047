#include "engine/cuda/node_engine.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/fault.hpp"
#include "engine/cuda/library.hpp"
#include "engine/exchange.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/zero_padding.hpp"
#include "transport/cuda/regrouping.hpp"

namespace shunt {
namespace {

/// Limit on maps whose tables are kept without a plan that uses them.
constexpr std::size_t kMostMaps = 16;

class PendingOnStream final : public Pending {
 public:
  PendingOnStream(std::shared_ptr<NodeEngine> engine, std::shared_ptr<NodeEngine::Submitted> operation, Stream callers)
      : engine_(std::move(engine)), operation_(std::move(operation)), callers_(callers) {}

  void wait() override {
    engine_->complete(*operation_);
    engine_->require_no_capture("wait");
    engine_->wait(*operation_);
  }
  void wait_on(Stream stream) override {
    engine_->complete(*operation_);
    let_wait(stream);
  }
  [[nodiscard]] bool done() const override {
    engine_->complete(*operation_);
    // An event of a capture can't be asked, nor any by a thread that captures.
    if (operation_->capture || engine_->is_capturing()) return false;
    const cudaError_t status = cudaEventQuery(operation_->event.get());
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status != cudaErrorNotReady;
  }
  void drop(bool) override {
    engine_->complete_dropped(*operation_);
    if (operation_->event) let_wait(callers_ ? callers_ : engine_->cuda_stream);
  }

 private:
  void let_wait(Stream stream) const {
    if (stream != engine_->cuda_stream)
      device::check(cudaStreamWaitEvent(stream, operation_->event.get(), 0), "let a stream wait for an operation");
  }
  std::shared_ptr<NodeEngine> engine_;
  std::shared_ptr<NodeEngine::Submitted> operation_;
  Stream callers_;  // the stream that the call was given
};

}  // namespace

// Making it.

NodeEngine::NodeEngine(World& engine_world, const EngineOptions& engine_options,
                       std::shared_ptr<DeviceHeap> device_heap)
    : Impl(engine_world, engine_options, EngineKind::node),
      heap(std::move(device_heap)),
      cuda_stream(options.device->stream ? options.device->stream : heap->stream.get()),
      deferred_(std::make_shared<device::DeferredBlocks>(
          [lender = heap](std::byte* block) { lender->memory.release(block); })),
      is_left_out_(static_cast<std::size_t>(num_ranks())),
      was_left_out_(is_left_out_) {
  const device::OnDevice scope(memory().device);
  options.device->index = memory().device;
  options.device->stream = cuda_stream;
  stream_in_use_.emplace(memory().device, cuda_stream);
  page_ = heap->take_page();
  watch_ = std::make_unique<device::Watchdog::Watch>(heap->watchdog, world, page_->watchdog_words);
  exchange_control_blocks(engine_world);
  check_connections(engine_world);
}

NodeEngine::~NodeEngine() {
  // Operations in progress end at the latest when a rank is lost or at the deadline; their memory must not be reused
  // before.
  (void)cudaStreamSynchronize(cuda_stream);
  if (has_failed() || has_left_out()) keep_what_peers_may_write();
  deferred_->complete(std::numeric_limits<std::uint64_t>::max());
}

void NodeEngine::exchange_control_blocks(World& engine_world) {
  struct PeerInfo {
    std::uint64_t agreement;
    std::uint64_t control_offset;
    bool has_room;
  };
  const auto count = static_cast<std::size_t>(num_ranks());
  control_.self = rank().value;
  control_.shape = {num_ranks(), options.device->max_experts + num_ranks()};
  control_.fault = &page_->fault;
  control_.watchdog_words = page_->watchdog_words;
  control_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(*options.deadline).count());
  elsewhere_ = control_;
  elsewhere_.shape.num_words = 0;
  elsewhere_.deadline_ns *= 2;  // ranks may notice a loss at different times

  // Tables of [ranks] pointers: heaps, control blocks, regrouping blocks, published [2, ranks], regrouping's [2,
  // ranks].
  constexpr std::size_t kTables = 7;
  const std::size_t control_bytes = elsewhere_.shape.bytes() + control_.shape.bytes();
  const std::size_t own_bytes =
      kTables * count * sizeof(void*) + 2 * sizeof(device::KernelState) + sizeof(unsigned long long);
  std::exception_ptr failure;
  try {
    control_block_ = heap->allocate(control_bytes);
    own_block_ = heap->allocate(own_bytes);
    device::check(cudaMemsetAsync(control_block_.get(), 0, control_bytes, cuda_stream), "clear signals");
    device::check(cudaMemsetAsync(own_block_.get(), 0, own_bytes, cuda_stream), "clear signals");
    device::check(cudaStreamSynchronize(cuda_stream), "clear signals");
  } catch (const Error&) {
    failure = std::current_exception();
  }

  const PeerInfo mine{
      Hasher()
          .add(options.hidden, options.dtype, *options.expert_dtype, *options.result_dtype, *options.wire_dtype,
               options.reduction, options.device->max_tokens, options.device->max_experts)
          .value(),
      control_block_ ? heap->memory.offset_of(control_block_.get()) : 0, failure == nullptr};
  const auto all = engine_world.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<std::byte*> pointers(3 * count);
  for (std::size_t peer = 0; peer < count; ++peer) {
    const auto theirs = gathered<PeerInfo>(all[peer], peer);
    if (theirs.agreement != mine.agreement)
      fail(ErrorCode::mismatch, "{}: ranks {} and {} make engines with different options", title("engine"), rank(),
           peer);
    if (!failure && !theirs.has_room)
      fail(ErrorCode::system, "{}: rank {} has no room for it in its device heap", title("engine"), peer);
    pointers[peer] = heap->memory.base_of(peer);
    pointers[2 * count + peer] = pointers[peer] + theirs.control_offset;
    SHUNT_CHECK(elsewhere_.shape.bytes() % alignof(device::BarrierRecord) == 0);
    pointers[count + peer] = pointers[2 * count + peer] + elsewhere_.shape.bytes();
  }
  if (failure) std::rethrow_exception(failure);
  auto** const words = reinterpret_cast<std::byte**>(own_block_.get());
  copy_when_idle(words, pointers.data(), pointers.size() * sizeof(void*), "upload the addresses of peers");
  auto* const states = reinterpret_cast<device::KernelState*>(words + kTables * count);
  control_.heaps = elsewhere_.heaps = words;
  control_.blocks = words + count;
  control_.published = words + 3 * count;
  control_.state = states;
  elsewhere_.blocks = words + 2 * count;
  elsewhere_.published = words + 5 * count;
  elsewhere_.state = states + 1;
  static_assert(2 * sizeof(device::KernelState) % sizeof(unsigned long long) == 0);
  furthest_round_ = reinterpret_cast<unsigned long long*>(states + 2);
}

void NodeEngine::check_connections(World& engine_world) const {
  // All ranks of this process have counted their streams before the all-gather.
  const std::int32_t streams = device::StreamInUse::num_streams(memory().device);
  const std::int32_t connections = world->comm->environment().device_connections;
  const bool is_fine = streams <= connections;
  std::optional<RankId> crowded;
  const auto all = engine_world.all_gather(std::as_bytes(std::span(&is_fine, 1)));
  for (std::size_t peer = all.size(); peer-- > 0;)
    if (all[peer][0] == std::byte{0}) crowded = RankId(static_cast<std::int32_t>(peer));
  if (!is_fine)
    call("engine").fail(
        ErrorCode::unsupported,
        "operations of this process would run on {} streams of device {}, which has {} connections, and could wait for "
        "each other forever; set CUDA_DEVICE_MAX_CONNECTIONS to {} or more, at most {}, before CUDA starts, or let "
        "engines share streams",
        streams, memory().device, connections, streams, Environment::kMostDeviceConnections);
  if (crowded)
    call("engine").fail(ErrorCode::unsupported, "rank {}'s process has more streams than its device has connections",
                        *crowded);
}

std::vector<std::vector<std::byte>> NodeEngine::gather(std::span<const std::byte> mine) {
  return shunt::gather({*world->comm, world->group, world->topology, key, next_sequence_, *options.deadline},
                       OpKind::plan, mine, {mine.size()});
}

// Faults.

bool NodeEngine::has_failed() const { return device::cause_of(page_->fault) != device::FaultRecord::none; }

bool NodeEngine::has_left_out() const { return std::ranges::find(is_left_out_, true) != is_left_out_.end(); }

void NodeEngine::keep_what_peers_may_write() const noexcept {
  device::SymmetricHeap& blocks = heap->memory;
  const auto keep = [&](const std::byte* block) {
    if (block) blocks.keep(blocks.offset_of(block));
  };
  keep(control_block_.get());
  for (const auto& buffers : all_padded_buffers())
    for (const std::byte* used : {buffers->rows.data, buffers->row_scales.data, buffers->counts.data,
                                  buffers->expert_out.data, buffers->begins.get()})  // the last two are read
      keep(used);
  // Memory published at a barrier is used until the next, and all ranks have passed the last but one. Ranks that were
  // left out write to padded buffers only.
  if (has_failed() && device::Tag::unpack(page_->fault.tag).kind != OpKind::leave_out)
    for (const std::uint64_t offset : page_->fault.published)
      if (offset != 0) blocks.keep(offset);
}

void NodeEngine::throw_if_faulty() const {
  if (has_failed()) keep_what_peers_may_write();
  device::throw_if_faulty(page_->fault, *watch_, rank(), *options.deadline, options.name);
}

void NodeEngine::check() const {
  throw_if_faulty();
  if (!has_left_out()) Impl::check();
}

std::optional<RankId> NodeEngine::missing() const {
  const device::FaultRecord::Cause cause = device::cause_of(page_->fault);
  if (cause != device::FaultRecord::deadline && cause != device::FaultRecord::lost) return std::nullopt;
  return RankId(page_->fault.peer);
}

void NodeEngine::require_majority(const std::vector<bool>& now_left_out) const {
  std::int32_t num_before = 0, num_left = 0;
  bool keeps_first = false;
  for (std::size_t each = 0; each < now_left_out.size(); ++each) {
    if (was_left_out_[each]) continue;
    if (num_before++ == 0) keeps_first = !now_left_out[each];
    num_left += !now_left_out[each];
  }
  if (2 * num_left < num_before || (2 * num_left == num_before && !keeps_first))
    call("leave_out")
        .fail(ErrorCode::minority,
              "{} of {} ranks would go on, which is no majority: the others may have left this rank out", num_left,
              num_before);
}

void NodeEngine::leave_out(std::span<const RankId> ranks) {
  require_no_capture("leave_out");
  for (const RankId left : ranks)
    call("leave_out")
        .demand(left.value >= 0 && left.value < num_ranks() && left != rank(), "rank {} is not one of the {} others",
                left, num_ranks() - 1);
  std::vector<bool> now_left_out = is_left_out_;
  for (const RankId left : ranks) now_left_out[left.index()] = true;
  require_majority(now_left_out);
  is_left_out_ = std::move(now_left_out);
  const device::OnDevice scope(memory().device);
  std::vector<std::byte* const*> tables{control_.blocks, elsewhere_.blocks};
  for (const auto& buffers : all_padded_buffers())
    for (std::uint8_t place = 0; place < PaddedBuffers::kNumPlaces; ++place)
      tables.push_back(buffers->peers_at(static_cast<PaddedBuffers::Place>(place)));
  Hasher who;
  for (std::size_t left = 0; left < is_left_out_.size(); ++left) {
    if (!is_left_out_[left]) continue;
    who.add(left);
    std::byte* const nowhere = nullptr;
    for (std::byte* const* const table : tables)
      copy_when_idle(const_cast<std::byte**>(table + left), &nowhere, sizeof(nowhere), "leave a rank out");
  }
  device::check(cudaStreamSynchronize(cuda_stream), "leave ranks out");
  if (has_failed()) keep_what_peers_may_write();
  page_->fault = {};
  watch_->leave_out(is_left_out_);
  if (const auto half = half_done_.lock()) {
    half->second_half.reset();
    mark(*half, nullptr);
  }
  half_done_.reset();
  has_lost_half_ = false;
  dispatched_.reset();
  const device::Tag tag{OpKind::leave_out, device::Phase::begin, who.value()};
  device::launch(device::Regrouping{control_, elsewhere_, num_regroupings_ + 1, tag.packed(), furthest_round_},
                 cuda_stream);
  std::uint64_t round = 0;
  copy_when_idle(&round, furthest_round_, sizeof(round), "regroup");
  num_regroupings_ = round - 1;
  device::throw_if_faulty(page_->fault, *watch_, rank(), 2 * *options.deadline, options.name);
  ++num_regroupings_;
  was_left_out_ = is_left_out_;
}

// The stream.

std::optional<std::uint64_t> NodeEngine::capture_id(Stream callers) const {
  for (const cudaStream_t stream : {cuda_stream, callers}) {
    if (!stream) continue;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    device::check(cudaStreamGetCaptureInfo(stream, &status, &id), "ask whether a stream is captured");
    if (status != cudaStreamCaptureStatusNone) return id;
  }
  return std::nullopt;
}

void NodeEngine::require_no_capture(std::string_view operation) const {
  call(operation).demand(!is_capturing(), "the host can't wait for what is being captured");
}

void NodeEngine::start_after(Stream after) {
  if (const auto half = half_done_.lock()) complete(*half, after);
  throw_if_faulty();
  call("engine").demand(!std::exchange(has_lost_half_, false),
                        "a ticket of padded rows was dropped when the capture that holds its call was over: its graph "
                        "does not wait for the others; wait for it, or drop it, while it is captured");
  work_ = deferred_->begin_work();
  if (after && after != cuda_stream)
    device::check(
        cudaStreamWaitEvent(cuda_stream, events_->record(after, "wait for a stream of another device").get(), 0),
        "wait for the caller's stream");
  just_planned_ = {};
}

std::shared_ptr<Pending> NodeEngine::submit(Stream callers, std::initializer_list<ConstTensor> inputs,
                                            std::optional<Submitted::Half> second_half) {
  auto operation = std::make_shared<Submitted>();
  for (const ConstTensor& input : inputs)
    if (input.owner) operation->inputs.push_back(input.owner);
  operation->second_half = std::move(second_half);
  operation->capture = capture_id();
  if (operation->second_half)
    half_done_ = operation;
  else
    mark(*operation, callers);
  return std::make_shared<PendingOnStream>(shared_from_this(), std::move(operation), callers);
}

void NodeEngine::require_all_ranks(std::string_view operation) const {
  if (has_left_out()) call(operation).fail(ErrorCode::unsupported, "ranks were left out, so only padded plans go on");
}

void NodeEngine::mark(Submitted& operation, Stream callers) {
  operation.event = events_->record(cuda_stream);
  operation.work = work_;
  free_completed(operation.event, callers);
}

void NodeEngine::wait(const Submitted& operation) const {
  device::check(cudaEventSynchronize(operation.event.get()), "wait for an operation");
  throw_if_faulty();
  deferred_->complete(operation.work);
}

void NodeEngine::free_completed(const device::Events::Event& now, Stream callers) {
  if (deferred_->empty() || capture_id(callers)) return;  // a thread that captures may ask no event
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
  if (!has_failed()) deferred_->complete(probe_.work);
  probe_ = {};
}

device::BarrierRecord NodeEngine::record(device::Tag tag, const void* published, const void* second) const {
  const auto offset = [&](const void* block) { return block ? heap->memory.offset_of(block) : 0; };
  return {offset(published), offset(second), tag.packed()};
}

void NodeEngine::begin_barrier(device::Tag tag, const void* published, const void* second) const {
  device::launch_barrier(control_, record(tag, published, second), cuda_stream);
}

void NodeEngine::end_barrier(device::Tag tag, const device::Poison& outputs) const {
  device::launch_barrier(control_, record(tag), cuda_stream, device::BarrierPart::whole, outputs);
}

// Memory.

template <class Make>
auto NodeEngine::with_room(const Make& make) const {
  try {
    return make();
  } catch (const Error&) {
    if (deferred_->empty() || is_capturing()) throw;
  }
  device::check(cudaStreamSynchronize(cuda_stream), "wait for room");
  throw_if_faulty();
  deferred_->complete(work_);
  work_ = deferred_->begin_work();  // the caller's work is not on the stream yet
  return make();
}

Tensor NodeEngine::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  return with_room([&] { return heap->allocate(dtype, rows, cols); });
}

std::shared_ptr<std::byte> NodeEngine::allocate_hidden(std::size_t bytes) const {
  return with_room(
      [&] { return deferred_->take(bytes, [&](std::size_t wanted) { return heap->memory.allocate(wanted); }); });
}

std::shared_ptr<std::byte> NodeEngine::allocate_kept(std::size_t bytes) const {
  return with_room([&] { return heap->allocate(bytes); });
}

Tensor NodeEngine::staging(std::string_view operation, const ConstTensor& like) const {
  call(operation).demand(!is_capturing(),
                         "what is captured needs whole tensors that came from Engine::allocate: a copy's memory would "
                         "not live as long as the graph");
  Tensor tensor{nullptr, like.dtype, like.rows, like.cols, nullptr, memory()};
  const std::shared_ptr<std::byte> block = allocate_hidden(tensor.bytes());
  tensor.data = block.get();
  tensor.owner = block;
  return tensor;
}

bool NodeEngine::is_symmetric(const ConstTensor& tensor) const {
  // Kernels rely on the alignment of the heap's blocks.
  return tensor.is_contiguous() && heap->memory.contains(tensor.data, tensor.bytes()) &&
         heap->memory.offset_of(tensor.data) % device::SymmetricHeap::kAlignment == 0;
}

void NodeEngine::copy_in(std::string_view operation, const ConstTensor& from, const Tensor& to) const {
  if (from.bytes() == 0) return;
  if (from.memory == memory()) {
    device::launch(device::CopyBytes{.from = from.data,
                                     .to = to.data,
                                     .row_bytes = from.is_contiguous() ? from.bytes() : from.row_bytes(),
                                     .num_rows = from.is_contiguous() ? 1 : from.rows,
                                     .from_stride = from.stride_bytes()},
                   cuda_stream);
    return;
  }
  require_no_capture(operation);
  copy(from, to);
}

ConstTensor NodeEngine::staged(std::string_view operation, const ConstTensor& tensor) const {
  const Tensor copied = staging(operation, tensor);
  copy_in(operation, tensor, copied);
  return copied;
}

ConstTensor NodeEngine::readable(std::string_view operation, const ConstTensor& tensor) const {
  const bool is_readable = (tensor.memory == memory() && tensor.is_contiguous()) || tensor.bytes() == 0;
  return is_readable ? tensor : staged(operation, tensor);
}

ConstTensor NodeEngine::publish(std::string_view operation, const ConstTensor& tensor) const {
  return is_symmetric(tensor) ? tensor : staged(operation, tensor);
}

Tensor NodeEngine::writable_by_peers(std::string_view operation, const Tensor& out) const {
  return is_symmetric(out) ? out : staging(operation, out);
}

void NodeEngine::deliver(const Tensor& received, const Tensor& out) const {
  if (received.data != out.data)
    device::launch(device::CopyBytes{.from = received.data, .to = out.data, .row_bytes = out.bytes()}, cuda_stream);
}

void NodeEngine::copy(const ConstTensor& from, const Tensor& to) const {
  require_no_capture("copy");
  const device::OnDevice scope(memory().device);
  device::copy_when_idle(from, to, cuda_stream);
}

void NodeEngine::zero_padding(const NodePlan& plan, const Tensor& rows) const {
  if (plan.shape.unique || plan.options.alignment == 1) return;
  device::launch(device::ZeroPadding{.rows = rows.data,
                                     .offsets = plan.arrays.expert_offsets,
                                     .counts = plan.arrays.expert_counts,
                                     .num_experts = plan.shape.num_local,
                                     .row_bytes = rows.row_bytes(),
                                     .stop = &control_.state->fault},
                 cuda_stream);
}

std::shared_ptr<const device::MapTables> NodeEngine::tables_of(const ExpertMap& map) {
  if (const auto known = maps_.find(map.hash()); known != maps_.end()) return known->second;
  call("plan").demand(!is_capturing(), "this map is new to the engine; plan with it once before it is captured");
  const device::MapWords words(map, world->topology, options.reduction == Reduction::flat);
  const std::size_t bytes = words.words().size() * sizeof(std::int32_t);
  const auto block = with_room([&] { return heap->allocate(bytes); });
  copy_when_idle(block.get(), words.words().data(), bytes, "upload the tables of a map");
  // The stream is idle, so tables without a plan are unused.
  if (maps_.size() >= kMostMaps) std::erase_if(maps_, [](const auto& known) { return known.second.use_count() == 1; });
  const auto tables = std::make_shared<device::MapTables>(words.at(reinterpret_cast<std::int32_t*>(block.get())));
  return maps_[map.hash()] = {tables.get(), [tables, block](const device::MapTables*) {}};
}

}  // namespace shunt
