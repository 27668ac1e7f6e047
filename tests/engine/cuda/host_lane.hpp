// A device made of host memory, so that all but kernels is tested without a GPU.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "engine/cuda/cluster/host_buffers.hpp"
#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "engine/world_impl.hpp"
#include "shunt/engine.hpp"

namespace shunt::test {

/// A stream of a caller's. What is put there is done when a mark of it passes, or when it is waited for.
class HostStream {
 public:
  enum class Pace : std::uint8_t { late, prompt };  // prompt: marks pass when they are first looked at

  explicit HostStream(Pace pace = Pace::late) : pace_(pace) {}

  [[nodiscard]] Pace pace() const { return pace_; }
  [[nodiscard]] Stream handle() { return reinterpret_cast<Stream>(this); }
  static HostStream& of(Stream stream) { return *reinterpret_cast<HostStream*>(stream); }

  void put(std::function<void()> work);
  [[nodiscard]] std::uint64_t num_put() const;
  /// Does what is left of the first so many.
  void run_until(std::uint64_t count);

 private:
  Pace pace_;
  mutable std::mutex mutex_;
  std::deque<std::function<void()>> left_;
  std::uint64_t num_put_ = 0;
  std::uint64_t num_done_ = 0;
};

/// What is launched is done in order, but late: a bit of it whenever somebody asks whether it is done.
class HostLane final : public device::Lane {
 public:
  struct Buffers {
    std::size_t bytes;
    std::size_t num_each_way;
  };

  HostLane(const World& world, const Buffers& buffers, std::uint64_t seed);
  ~HostLane() override { finish(); }

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const override;
  void keep(std::uint64_t offset) noexcept override { kept_.insert(offset); }
  [[nodiscard]] bool has_kept(const std::byte* data) const { return kept_.contains(*offset_of(data, 1)); }
  [[nodiscard]] std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const override;

  [[nodiscard]] std::shared_ptr<std::byte> take_buffer(device::Way way) override {
    return (way == device::Way::out ? out_ : in_).take();
  }
  [[nodiscard]] std::size_t buffer_bytes() const override { return buffers_.bytes; }

  void launch(device::CopyBytes copy) override;
  void launch(device::CopyRows copy) override;
  void launch(device::GatherRows gather) override;
  void launch(device::QuantiseRows quantise) override;
  void launch(device::ReduceRows reduce) override;
  void launch(device::ScaleRows scale) override;
  void launch(device::DotRows dot) override;
  void launch(device::ZeroPadding padding) override;
  void write(std::byte** to, std::span<std::byte* const> pointers) override;
  [[nodiscard]] std::byte* land(const std::byte* buffer, std::size_t bytes) override;

  /// Names this lane; others put work there by put().
  [[nodiscard]] Stream stream() const override { return reinterpret_cast<Stream>(const_cast<HostLane*>(this)); }
  static HostLane& of(Stream stream) { return *reinterpret_cast<HostLane*>(stream); }
  /// Called again and again, when its turn has come, until it returns true.
  void put(std::function<bool()> work);

  [[nodiscard]] Mark mark() override;
  /// Of a HostStream: what was put there is done after some time.
  [[nodiscard]] Mark mark(Stream stream) override;

  void finish() override;
  [[nodiscard]] bool is_idle() const;
  void wait_for(Stream waited) override {
    if (waited == stream()) return finish();
    if (waited) HostStream::of(waited).run_until(HostStream::of(waited).num_put());
  }
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;

 private:
  template <class Work>
  void put_at_once(Work work) {
    put([work = std::move(work)] {
      work();
      return true;
    });
  }
  bool do_next();
  /// Does some of what is left; true once `count` launches are done. Wakes the engine if not, so that it asks again.
  bool advance(std::uint64_t count);

  Transport& transport_;
  Fabric& fabric_;
  const Group& group_;
  Buffers buffers_;
  device::HostBuffers out_;
  device::HostBuffers in_;
  std::vector<std::byte> landing_;
  std::set<std::uint64_t> kept_;
  mutable std::mutex mutex_;
  std::mt19937_64 dice_;
  std::deque<std::function<bool()>> launched_;
  std::uint64_t num_launched_ = 0;
  std::uint64_t num_done_ = 0;
};

/// An engine between nodes whose device is host memory.
[[nodiscard]] Engine engine_on_host(World& world, const EngineOptions& options, std::shared_ptr<HostLane> lane,
                                    std::shared_ptr<device::NcclNetwork> nccl = nullptr);

}  // namespace shunt::test
