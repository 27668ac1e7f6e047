#include "transport/inproc/islands.hpp"

#include <deque>
#include <mutex>

#include "core/fail.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/slice_buffers.hpp"

namespace shunt::inproc {
namespace {

/// Where slices for one rank arrive.
struct Quay {
  std::mutex mutex;
  std::deque<InSlice> arrived;
};

/// One rank's end of the slices between islands.
class Ferry final : public SliceLink {
 public:
  using Bells = std::vector<std::shared_ptr<Bell>>;

  Ferry(RankId rank, std::shared_ptr<std::vector<Quay>> quays, Bells bells)
      : rank_(rank),
        quays_(std::move(quays)),
        bells_(std::move(bells)),
        buffers_(kMostOpen, [bell = bells_[rank.index()]] { bell->ring(); }) {}

  std::optional<OutSlice> open(std::size_t bytes) override { return buffers_.open(bytes); }

  void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) override {
    Quay& quay = (*quays_)[peer.index()];
    {
      const std::lock_guard lock(quay.mutex);
      quay.arrived.push_back({rank_, tag, slice.bytes.first(bytes), std::move(slice.owner)});
    }
    bells_[peer.index()]->ring();
  }

  bool poll(InSlice& slice) override {
    Quay& quay = (*quays_)[rank_.index()];
    {
      const std::lock_guard lock(quay.mutex);
      if (quay.arrived.empty()) return false;
      slice = std::move(quay.arrived.front());
      quay.arrived.pop_front();
    }
    // A copy, as over a network: the sender's few buffers must not wait until this rank needs what is in them.
    const auto copy = std::make_shared<std::vector<std::byte>>(slice.bytes.begin(), slice.bytes.end());
    slice.bytes = *copy;
    slice.owner = copy;
    return true;
  }

  // Threads of one process have nothing to fear from each other's memory.
  void expect(RankId, std::int64_t, std::size_t) override {}

 private:
  // Few, so that running out of them is an everyday event.
  static constexpr std::int32_t kMostOpen = 16;

  RankId rank_;
  std::shared_ptr<std::vector<Quay>> quays_;
  Bells bells_;
  SliceBuffers buffers_;  // what it rings may outlive this rank, as its receivers do
};

class Island final : public LocalTransport {
 public:
  Island(RankId rank, Segments segments, const Topology& topology, std::shared_ptr<std::vector<Quay>> quays)
      : LocalTransport(rank, std::move(segments)), topology_(topology), ferry_(rank, std::move(quays), bells()) {}

  [[nodiscard]] HostId host(RankId peer) const override { return HostId(topology_.node(peer).value); }
  [[nodiscard]] NicId nic(RankId peer) const override { return NicId(peer.value); }
  [[nodiscard]] std::byte* peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const override {
    SHUNT_CHECK(host(peer) == host(rank()));
    return LocalTransport::peer_pointer(peer, offset, bytes);
  }
  [[nodiscard]] SliceLink* slices() override { return &ferry_; }

 private:
  Topology topology_;
  Ferry ferry_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> join_islands(const Topology& topology) {
  const auto num_ranks = static_cast<std::size_t>(topology.num_ranks());
  const auto segments = LocalTransport::anonymous_segments(topology.num_ranks());
  const auto quays = std::make_shared<std::vector<Quay>>(num_ranks);
  std::vector<std::shared_ptr<Transport>> ends;
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    ends.push_back(std::make_shared<Island>(RankId(rank), segments, topology, quays));
  return ends;
}

}  // namespace shunt::inproc
