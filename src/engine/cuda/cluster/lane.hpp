// A device as operations between nodes use it: memory, a CUDA stream for their kernels, and host memory in between.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/cuda/check.hpp"
#include "core/cuda/on_device.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/cuda/events.hpp"
#include "engine/operation.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"
#include "kernels/cuda/zero_padding.hpp"
#include "shunt/stream.hpp"
#include "transport/transport.hpp"

namespace shunt::device {

/// What a lane's CUDA calls need on the thread that makes them, which is the engine's or any of the callers'. Makes the
/// device current; drops an error that the thread's own calls have left behind, for which a launch would be blamed; and
/// permits calls that would break a capture under way on another thread.
class LaneScope {
 public:
  explicit LaneScope(int device) : on_device_(device) {
    (void)cudaGetLastError();
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "stand aside from captures");
  }
  ~LaneScope() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  LaneScope(const LaneScope&) = delete;
  LaneScope& operator=(const LaneScope&) = delete;

 private:
  OnDevice on_device_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then what the thread had before
};

/// Which way a buffer's rows go. Each way has buffers of its own: those that wait for a peer's room never keep this
/// rank from making room.
enum class Way : std::uint8_t { out, in };

struct BufferLimits {
  std::size_t bytes;
  std::int32_t num_each_way;
};

/// One engine's memory on a device and its work there, which is done in the order in which it is launched. Any thread,
/// several at a time: a caller that issues an operation may launch what prepares it while another thread drives others.
class Lane {
 public:
  /// True once what was marked is done. What is launched after that finds its results.
  using Mark = std::function<bool()>;

  /// The heap holds the ranks of this rank's node, in any order. The transport outlives this object.
  Lane(Transport& transport, const Group& group, std::shared_ptr<DeviceHeap> heap, const BufferLimits& limits);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Device memory that near ranks address.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return heap_->allocate(bytes); }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) {
    return heap_->allocate(dtype, rows, cols);
  }
  /// Where near ranks find [data, data + bytes); nothing if that is not memory of allocate().
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const;
  /// The block there is never handed out again: near ranks may still use it.
  void keep(std::uint64_t offset) noexcept { heap_->memory.keep(offset); }
  /// A near rank's memory. The offset comes from that rank and is checked: throws PeerError.
  [[nodiscard]] std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const;

  /// Host memory of buffer_bytes() that kernels address; nullptr while all are in use. Given back with its last owner,
  /// maybe later than this object; the engine is woken then.
  [[nodiscard]] std::shared_ptr<std::byte> take_buffer(Way way);
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_bytes_; }

  /// Launches what a kernel of kernels/cuda does; its `stop` need not be set.
  template <class Work>
  void launch(Work work) {
    if constexpr (requires { work.stop; }) work.stop = reinterpret_cast<const std::uint32_t*>(zero_.get());
    const LaneScope scope(device());
    device::launch(work, work_.get());
  }
  /// Writes pointers into device memory; they are read during the call.
  void write(std::byte** to, std::span<std::byte* const> pointers);
  /// Copies a buffer to the device; what is launched next may read it there, and nothing later.
  [[nodiscard]] std::byte* land(const std::byte* buffer, std::size_t bytes);

  /// What launches go to, for others that put work there.
  [[nodiscard]] Stream stream() const { return work_.get(); }

  /// Marks what has been launched so far. The engine is woken when it is done.
  [[nodiscard]] Mark mark();
  /// The same of what has been put on a stream of the caller's; null: nothing.
  [[nodiscard]] Mark mark(Stream stream);

  // Here the host waits.

  /// Waits for all that was launched.
  void finish() { wait_for(stream()); }
  void wait_for(Stream stream);
  // These wait for the copy alone; one thread at a time.
  void upload(std::byte* to, std::span<const std::byte> from);
  void download(std::span<std::byte> to, const std::byte* from);

 private:
  /// Wakes the engine while there is one: buffers and callbacks on callers' streams may outlive it.
  class Waker {
   public:
    explicit Waker(Transport& transport) : transport_(&transport) {}
    void wake() {
      const std::lock_guard lock(mutex_);
      if (transport_) transport_->wake();
    }
    void end() {
      const std::lock_guard lock(mutex_);
      transport_ = nullptr;
    }

   private:
    std::mutex mutex_;
    Transport* transport_;
  };

  /// The buffers of one way that are free.
  struct FreeBuffers {
    std::mutex mutex{};
    std::vector<std::byte*> buffers{};
  };

  [[nodiscard]] int device() const { return heap_->memory.device(); }
  void copy_now(const CopyBytes& copy);
  [[nodiscard]] Mark passed(const Events::Event& event) const;
  void wake_after(cudaStream_t stream);

  std::vector<RankId> members_;  // of the world, as ranks of the transport
  std::shared_ptr<Waker> waker_;
  std::shared_ptr<DeviceHeap> heap_;
  std::size_t buffer_bytes_;
  std::vector<std::ptrdiff_t> heap_rank_;  // by rank of the world; −1 for far ones
  std::shared_ptr<std::byte> pinned_;
  std::byte* staging_;  // of upload and download
  std::array<std::shared_ptr<FreeBuffers>, 2> free_;
  std::shared_ptr<std::byte> landing_;
  std::shared_ptr<std::byte> zero_;  // a word that is 0
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  std::shared_ptr<CUstream_st> work_;
  std::shared_ptr<CUstream_st> copies_;  // of upload and download, which must not wait for what NCCL waits for
  // Wakes the engine when marks have passed. It holds up nothing: a callback on the stream itself would.
  std::shared_ptr<CUstream_st> wakes_;
};

}  // namespace shunt::device
