// A lane that is a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/cluster/host_buffers.hpp"
#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/cuda/events.hpp"
#include "engine/operation.hpp"
#include "transport/transport.hpp"

namespace shunt::device {

struct BufferLimits {
  std::size_t bytes;
  std::int32_t num_each_way;
};

class CudaLane final : public Lane {
 public:
  /// The heap holds the ranks of this rank's host, in any order. The transport outlives this object.
  CudaLane(Transport& transport, const Group& group, std::shared_ptr<DeviceHeap> heap, const BufferLimits& limits);
  ~CudaLane() override;

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return heap_->allocate(bytes); }
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const override;
  void keep(std::uint64_t offset) noexcept override { heap_->memory.keep(offset); }
  [[nodiscard]] std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const override;

  [[nodiscard]] std::shared_ptr<std::byte> take_buffer(Way way) override {
    return (way == Way::out ? out_buffers_ : in_buffers_).take();
  }
  [[nodiscard]] std::size_t buffer_bytes() const override { return limits_.bytes; }

  void launch(CopyBytes copy) override;
  void launch(CopyRows copy) override;
  void launch(GatherRows gather) override;
  void launch(QuantiseRows quantise) override;
  void launch(ReduceRows reduce) override;
  void launch(ScaleRows scale) override;
  void launch(DotRows dot) override;
  void launch(ZeroPadding padding) override;
  void write(std::byte** to, std::span<std::byte* const> pointers) override;
  [[nodiscard]] std::byte* land(const std::byte* buffer, std::size_t bytes) override;

  [[nodiscard]] Stream stream() const override { return streams_->work; }
  [[nodiscard]] Mark mark() override;
  [[nodiscard]] Mark mark(Stream stream) override;

  void finish() override;
  void wait_for(Stream stream) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;

 private:
  template <class Work>
  void launch_here(const Work& work);
  template <class Work>
  void launch_with_stop(Work work);
  void copy_now(const CopyBytes& copy);
  [[nodiscard]] Mark passed(const Events::Event& event) const;
  /// Wakes the engine, if there still is one, when what is on the stream is done.
  void ring_after(cudaStream_t stream);

  struct Streams {
    Streams();
    ~Streams();
    cudaStream_t work = nullptr;
    cudaStream_t copies = nullptr;  // of upload and download, which must not wait for what NCCL waits for
    // Wakes the engine when marks have passed. It holds up nothing: a callback on the stream itself would.
    cudaStream_t bell = nullptr;
  };

  /// A caller's stream may come to its callback when there is no engine any more.
  class Bell {
   public:
    explicit Bell(Transport& transport) : transport_(&transport) {}
    void ring() {
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

  Transport& transport_;
  std::vector<RankId> members_;  // of the world, as ranks of the transport
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>(transport_);
  std::shared_ptr<DeviceHeap> heap_;
  BufferLimits limits_;
  std::vector<std::ptrdiff_t> heap_rank_;  // by rank of the world; −1 for far ones
  std::shared_ptr<std::byte> pinned_;
  std::byte* staging_;  // of upload and download
  HostBuffers out_buffers_;
  HostBuffers in_buffers_;
  std::shared_ptr<std::byte> landing_;
  std::shared_ptr<std::byte> never_;  // a word that is 0
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  std::unique_ptr<Streams> streams_;
};

}  // namespace shunt::device
