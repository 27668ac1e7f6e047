#include "engine/cuda/cluster/lane.hpp"

#include <algorithm>
#include <cstring>

#include "core/cuda/memory.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/copy_bytes.hpp"

namespace shunt::device {
namespace {

void require_no_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask whether a stream is captured");
  if (status != cudaStreamCaptureStatusNone)
    fail(ErrorCode::invalid_argument, "engine: the host takes part, so nothing can be captured");
}

}  // namespace

Lane::Lane(Transport& transport, const Group& group, std::shared_ptr<DeviceHeap> heap, std::size_t least_bytes,
           std::int32_t num_buffers_each_way)
    : members_(group.members),
      shared_(new Shared{.transport = &transport}),
      heap_(std::move(heap)),
      buffer_bytes_((least_bytes + 255) / 256 * 256),
      landing_(heap_->allocate(buffer_bytes_)),
      zero_(heap_->allocate(sizeof(std::uint32_t))) {
  const auto num_each_way = static_cast<std::size_t>(std::max(num_buffers_each_way, 1));
  const LaneScope scope(device());
  pinned_ = heap_->pinned->take_buffer(2 * num_each_way * buffer_bytes_);
  for (std::size_t i = 0; i < 2 * num_each_way; ++i)
    shared_->free_buffers[i % 2].push_back(pinned_.get() + i * buffer_bytes_);
  for (std::size_t rank = 0; rank < group.members.size(); ++rank) {
    const auto found = std::ranges::find(heap_->members, group.members[rank]);
    if (group.is_near(RankId(rank)) && found == heap_->members.end())
      fail(ErrorCode::invalid_argument, "rank {}: engine: rank {} is on this machine, but not in the heap", group.self,
           rank);
    heap_rank_.push_back(group.is_near(RankId(rank)) ? found - heap_->members.begin() : -1);
  }
  for (auto* stream : {&work_, &copies_, &wakes_}) *stream = make_stream();
  const std::uint32_t zero = 0;
  copy(zero_.get(), &zero, sizeof(zero));
}

Lane::~Lane() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->transport = nullptr;
  }
  const LaneScope scope(device());
  for (auto* stream : {&work_, &copies_, &wakes_}) {
    (void)cudaStreamSynchronize(stream->get());
    stream->reset();
  }
}

std::optional<std::uint64_t> Lane::offset_of(const std::byte* data, std::size_t bytes) const {
  if (!heap_->memory.contains(data, bytes)) return std::nullopt;
  const std::uint64_t offset = heap_->memory.offset_of(data);
  // Kernels rely on the alignment of the heap's blocks.
  return offset % SymmetricHeap::kAlignment == 0 ? std::optional(offset) : std::nullopt;
}

std::byte* Lane::peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const {
  const std::size_t all = heap_->memory.bytes();
  if (offset > all || bytes > all - offset || offset % SymmetricHeap::kAlignment != 0)
    fail_because_of(members_[rank.index()], "rank {} announced {} bytes at {} of a device heap of {}", rank, bytes,
                    offset, all);
  return heap_->memory.base_of(static_cast<std::size_t>(heap_rank_[rank.index()])) + offset;
}

std::shared_ptr<std::byte> Lane::take_buffer(Way way) {
  const std::lock_guard lock(shared_->mutex);
  const auto direction = static_cast<std::size_t>(way);
  auto& free = shared_->free_buffers[direction];
  if (free.empty()) return nullptr;
  std::byte* const buffer = free.back();
  free.pop_back();
  return {buffer, [shared = shared_, memory = pinned_, direction](std::byte* freed) {
            const std::lock_guard guard(shared->mutex);
            shared->free_buffers[direction].push_back(freed);
            shared->wake();
          }};
}

void Lane::write(std::byte** to, std::span<std::byte* const> pointers) {
  const LaneScope scope(device());
  launch_write_pointers(to, pointers, work_.get());
}

// Kernels run in order, so one landing buffer is enough: its last reader has ended when the next copy starts.
std::byte* Lane::land(const std::byte* buffer, std::size_t bytes) {
  launch(CopyBytes{buffer, landing_.get(), bytes});
  return landing_.get();
}

Lane::Mark Lane::passed(const Events::Event& event) const {
  return [event, device = device()] {
    const LaneScope scope(device);
    const cudaError_t status = cudaEventQuery(event.get());
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();  // otherwise the thread's next launch would report it
      return false;
    }
    check(status, "look for a mark");
    return true;
  };
}

void Lane::wake_after(cudaStream_t stream) {
  auto passed_on = std::make_unique<std::shared_ptr<Shared>>(shared_);
  const auto wake = [](void* passed) {
    const std::unique_ptr<std::shared_ptr<Shared>> owned(static_cast<std::shared_ptr<Shared>*>(passed));
    const std::lock_guard lock((*owned)->mutex);
    (*owned)->wake();
  };
  check(cudaLaunchHostFunc(stream, wake, passed_on.get()), "report a mark");
  (void)passed_on.release();  // owned by the callback
}

Lane::Mark Lane::mark() {
  const LaneScope scope(device());
  const Events::Event event = events_->record(work_.get());
  check(cudaStreamWaitEvent(wakes_.get(), event.get(), 0), "wait for a mark");
  wake_after(wakes_.get());
  return passed(event);
}

Lane::Mark Lane::mark(Stream stream) {
  if (!stream) return [] { return true; };
  const LaneScope scope(device());
  require_no_capture(stream);
  Mark mark = passed(events_->record(stream));
  // On the caller's stream itself, as streams are scarce: the caller's next kernel waits for the callback.
  if (!mark()) wake_after(stream);
  return mark;
}

void Lane::wait_for(Stream stream) {
  if (!stream) return;
  const LaneScope scope(device());
  require_no_capture(stream);
  check(cudaStreamSynchronize(stream), "wait for a stream");
}

void Lane::finish_after_error() noexcept {
  try {
    finish();
  } catch (const Error&) {  // NOLINT: a failed device executes nothing
  }
}

void Lane::copy(void* to, const void* from, std::size_t bytes) {
  const LaneScope scope(device());
  copy_when_idle(to, from, bytes, copies_.get(), "copy between a host and its device");
}

void Lane::copy(const ConstTensor& from, const Tensor& to) {
  const LaneScope scope(device());
  copy_when_idle(from, to, copies_.get());
}

}  // namespace shunt::device
