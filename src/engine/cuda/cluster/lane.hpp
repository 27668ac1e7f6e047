// What operations between nodes use of a device: memory, CUDA streams, and pinned host buffers.
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

/// Prepares a thread, the engine's or a caller's, for a lane's CUDA calls: makes the device current, clears an error
/// that earlier calls of the thread have left, which the next launch would report, and permits calls that would
/// otherwise invalidate a capture on another thread.
class LaneScope {
 public:
  explicit LaneScope(int device) : on_device_(device) {
    (void)cudaGetLastError();
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "permit calls during captures");
  }
  ~LaneScope() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  LaneScope(const LaneScope&) = delete;
  LaneScope& operator=(const LaneScope&) = delete;

 private:
  OnDevice on_device_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // after the constructor: the thread's previous mode
};

/// The direction of a buffer's rows. Each direction has its own buffers, so that rows that wait for a peer's credits
/// never prevent this rank from receiving.
enum class Way : std::uint8_t { out, in };

/// One engine's memory on a device, and its kernels, which run in launch order. Thread-safe: a caller may launch the
/// preparation of its operation while another thread drives others.
class Lane {
 public:
  /// True once the marked work is complete; later launches see its results.
  using Mark = std::function<bool()>;

  /// The heap is shared by the ranks of this node, in any order. The transport must outlive this object. Buffers hold
  /// least_bytes or more.
  Lane(Transport& transport, const Group& group, std::shared_ptr<DeviceHeap> heap, std::size_t least_bytes,
       std::int32_t num_buffers_each_way);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] Memory memory() const { return Memory::on_device(device()); }
  /// Device memory that near ranks can address.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return heap_->allocate(bytes); }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) {
    return heap_->allocate(dtype, rows, cols);
  }
  /// The heap offset by which near ranks address [data, data + bytes); none if it is not from allocate().
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const;
  /// Withholds the block at this offset from reuse, because near ranks may still access it.
  void keep(std::uint64_t offset) noexcept { heap_->memory.keep(offset); }
  /// A near rank's memory. The offset comes from that rank and is checked: throws PeerError.
  [[nodiscard]] std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const;

  /// A pinned host buffer of buffer_bytes(); nullptr while all are in use. It is returned when its last owner releases
  /// it, possibly after this object's end, and the engine is woken then.
  [[nodiscard]] std::shared_ptr<std::byte> take_buffer(Way way);
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_bytes_; }

  /// Launches a kernel of kernels/cuda. `work.stop` need not be set.
  template <class Work>
  void launch(Work work) {
    if constexpr (requires { work.stop; }) work.stop = reinterpret_cast<const std::uint32_t*>(zero_.get());
    const LaneScope scope(device());
    device::launch(work, work_.get());
  }
  /// Writes pointers into device memory; the span is read during the call.
  void write(std::byte** to, std::span<std::byte* const> pointers);
  /// Copies a buffer to the device, for the next launch only.
  [[nodiscard]] std::byte* land(const std::byte* buffer, std::size_t bytes);

  /// The stream of all launches, for NCCL's too.
  [[nodiscard]] Stream stream() const { return work_.get(); }

  /// Marks everything launched so far. The engine is woken when it is complete.
  [[nodiscard]] Mark mark();
  /// Marks the work so far on a caller's stream; null: none.
  [[nodiscard]] Mark mark(Stream stream);

  // The host waits in these functions.

  /// Waits for everything launched.
  void finish() { wait_for(stream()); }
  /// The same while an Error is being thrown.
  void finish_after_error() noexcept;
  void wait_for(Stream stream);
  // These wait for the copy only.
  void copy(void* to, const void* from, std::size_t bytes);
  void copy(const ConstTensor& from, const Tensor& to);

 private:
  /// For buffers and for callbacks on callers' streams, which may outlive the lane.
  struct Shared {
    std::mutex mutex{};
    Transport* transport;  ///< wakes the engine; null once the lane has ended
    std::array<std::vector<std::byte*>, 2> free_buffers{};

    /// Call with the mutex held.
    void wake() const {
      if (transport) transport->wake();
    }
  };

  [[nodiscard]] int device() const { return heap_->memory.device(); }
  [[nodiscard]] Mark passed(const Events::Event& event) const;
  void wake_after(cudaStream_t stream);

  std::vector<RankId> members_;  // by rank of the world: its rank in the transport
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<DeviceHeap> heap_;
  std::size_t buffer_bytes_;
  std::vector<std::ptrdiff_t> heap_rank_;  // by rank of the world; −1 for far ones
  std::shared_ptr<std::byte> pinned_;
  std::shared_ptr<std::byte> landing_;
  std::shared_ptr<std::byte> zero_;  // a zero word, the `stop` of kernels
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  std::shared_ptr<CUstream_st> work_;
  std::shared_ptr<CUstream_st> copies_;  // for copy(), which must not queue behind NCCL's waits
  // Runs the callbacks that wake the engine; on the work stream they would delay kernels.
  std::shared_ptr<CUstream_st> wakes_;
};

}  // namespace shunt::device
