#include "engine/cuda/cluster/cuda_lane.hpp"

#include <algorithm>
#include <cstring>

#include "core/cuda/check.hpp"
#include "core/fail.hpp"
#include "engine/cuda/cluster/lane_scope.hpp"
#include "kernels/cuda/copy_bytes.hpp"

namespace shunt::device {
namespace {

std::shared_ptr<std::byte> pin(std::size_t bytes, int device) {
  const LaneScope scope(device);
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "pin buffers");
  return {static_cast<std::byte*>(data), [](std::byte* freed) { (void)cudaFreeHost(freed); }};
}

std::shared_ptr<std::byte> part(const std::shared_ptr<std::byte>& all, std::size_t offset) {
  return {all, all.get() + offset};
}

}  // namespace

CudaLane::Streams::Streams() {
  for (cudaStream_t* stream : {&work, &copies, &bell})
    check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "make a stream");
}

CudaLane::Streams::~Streams() {
  for (cudaStream_t stream : {work, copies, bell}) {
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
  }
}

CudaLane::CudaLane(Transport& transport, const Group& group, std::shared_ptr<DeviceHeap> heap,
                   const BufferLimits& limits)
    : transport_(transport),
      members_(group.members),
      heap_(std::move(heap)),
      limits_{(limits.bytes + 255) / 256 * 256, std::max(limits.num_each_way, 1)},
      pinned_(pin((2 * static_cast<std::size_t>(limits_.num_each_way) + 1) * limits_.bytes, heap_->memory.device())),
      staging_(pinned_.get() + 2 * static_cast<std::size_t>(limits_.num_each_way) * limits_.bytes),
      out_buffers_(part(pinned_, 0), limits_.bytes, static_cast<std::size_t>(limits_.num_each_way),
                   [this] { transport_.wake(); }),
      in_buffers_(part(pinned_, static_cast<std::size_t>(limits_.num_each_way) * limits_.bytes), limits_.bytes,
                  static_cast<std::size_t>(limits_.num_each_way), [this] { transport_.wake(); }),
      landing_(heap_->allocate(limits_.bytes)),
      never_(heap_->allocate(sizeof(std::uint32_t))) {
  for (std::size_t rank = 0; rank < group.members.size(); ++rank) {
    const auto found = std::ranges::find(heap_->members, group.members[rank]);
    if (group.is_near(rank) && found == heap_->members.end())
      fail(ErrorCode::invalid_argument, "rank {}: engine: rank {} is on this host, but not in the heap", group.self,
           rank);
    heap_rank_.push_back(group.is_near(rank) ? found - heap_->members.begin() : -1);
  }
  const LaneScope scope(heap_->memory.device());
  streams_ = std::make_unique<Streams>();
  const std::uint32_t zero = 0;
  upload(never_.get(), std::as_bytes(std::span(&zero, 1)));
}

CudaLane::~CudaLane() {
  bell_->end();
  const LaneScope scope(heap_->memory.device());
  streams_.reset();
}

std::optional<std::uint64_t> CudaLane::offset_of(const std::byte* data, std::size_t bytes) const {
  if (!heap_->memory.contains(data, bytes)) return std::nullopt;
  const std::uint64_t offset = heap_->memory.offset_of(data);
  // Kernels rely on what the heap aligns its blocks to.
  return offset % SymmetricHeap::kAlignment == 0 ? std::optional(offset) : std::nullopt;
}

std::byte* CudaLane::peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const {
  const std::size_t all = heap_->memory.bytes();
  if (offset > all || bytes > all - offset || offset % SymmetricHeap::kAlignment != 0)
    fail_because_of(members_[rank.index()], "rank {} announced {} bytes at {} of a device heap of {}", rank, bytes,
                    offset, all);
  return heap_->memory.base_of(static_cast<std::size_t>(heap_rank_[rank.index()])) + offset;
}

template <class Work>
void CudaLane::launch_here(const Work& work) {
  const LaneScope scope(heap_->memory.device());
  device::launch(work, streams_->work);
}

template <class Work>
void CudaLane::launch_with_stop(Work work) {
  work.stop = reinterpret_cast<const std::uint32_t*>(never_.get());
  launch_here(work);
}

void CudaLane::launch(CopyBytes copy) { launch_here(copy); }
void CudaLane::launch(CopyRows copy) { launch_with_stop(copy); }
void CudaLane::launch(GatherRows gather) { launch_here(gather); }
void CudaLane::launch(QuantiseRows quantise) { launch_with_stop(quantise); }
void CudaLane::launch(ReduceRows reduce) { launch_with_stop(reduce); }
void CudaLane::launch(ScaleRows scale) { launch_with_stop(scale); }
void CudaLane::launch(DotRows dot) { launch_with_stop(dot); }
void CudaLane::launch(ZeroPadding padding) { launch_with_stop(padding); }

void CudaLane::write(std::byte** to, std::span<std::byte* const> pointers) {
  const LaneScope scope(heap_->memory.device());
  launch_write_pointers(to, pointers, streams_->work);
}

// Work is done in order, so one place is enough: what read it before is done when the next copy starts.
std::byte* CudaLane::land(const std::byte* buffer, std::size_t bytes) {
  launch(CopyBytes{buffer, landing_.get(), bytes});
  return landing_.get();
}

Lane::Mark CudaLane::passed(const Events::Event& event) const {
  return [event, device = heap_->memory.device()] {
    const LaneScope asking(device);
    const cudaError_t status = cudaEventQuery(event.get());
    if (status == cudaErrorNotReady) return false;
    check(status, "look for a mark");
    return true;
  };
}

void CudaLane::ring_after(cudaStream_t stream) {
  auto ringing = std::make_unique<std::shared_ptr<Bell>>(bell_);
  const auto ring = [](void* bell) {
    const std::unique_ptr<std::shared_ptr<Bell>> owned(static_cast<std::shared_ptr<Bell>*>(bell));
    (*owned)->ring();
  };
  check(cudaLaunchHostFunc(stream, ring, ringing.get()), "be told of a mark");
  (void)ringing.release();  // the callback's
}

Lane::Mark CudaLane::mark() {
  const LaneScope scope(heap_->memory.device());
  const Events::Event event = events_->record(streams_->work);
  check(cudaStreamWaitEvent(streams_->bell, event.get(), 0), "wait for a mark");
  ring_after(streams_->bell);
  return passed(event);
}

Lane::Mark CudaLane::mark(Stream stream) {
  if (!stream) return [] { return true; };
  const LaneScope scope(heap_->memory.device());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask whether a stream is captured");
  if (status != cudaStreamCaptureStatusNone)
    fail(ErrorCode::invalid_argument, "engine: the host takes part, so nothing can be captured");
  Mark mark = passed(events_->record(stream));
  // There it is held up by nothing but the mark; the caller's next kernel waits for it, but streams are few.
  if (!mark()) ring_after(stream);
  return mark;
}

void CudaLane::finish() { wait_for(streams_->work); }

void CudaLane::wait_for(Stream stream) {
  if (!stream) return;
  const LaneScope scope(heap_->memory.device());
  check(cudaStreamSynchronize(stream), "wait for a stream");
}

void CudaLane::copy_now(const CopyBytes& copy) {
  const LaneScope scope(heap_->memory.device());
  device::launch(copy, streams_->copies);
  wait_for(streams_->copies);
}

void CudaLane::upload(std::byte* to, std::span<const std::byte> from) {
  for (; !from.empty(); to += limits_.bytes, from = from.subspan(std::min(from.size(), limits_.bytes))) {
    const std::size_t bytes = std::min(from.size(), limits_.bytes);
    std::memcpy(staging_, from.data(), bytes);
    copy_now({staging_, to, bytes});
  }
}

void CudaLane::download(std::span<std::byte> to, const std::byte* from) {
  for (; !to.empty(); from += limits_.bytes, to = to.subspan(std::min(to.size(), limits_.bytes))) {
    const std::size_t bytes = std::min(to.size(), limits_.bytes);
    copy_now({from, staging_, bytes});
    std::memcpy(to.data(), staging_, bytes);
  }
}

}  // namespace shunt::device
