#include "transport/inproc/join.hpp"

#include <deque>
#include <map>
#include <mutex>

#include "core/fail.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/slice_buffers.hpp"

namespace shunt::inproc {
namespace {

/// Slices that have arrived for one rank.
struct Inbox {
  std::mutex mutex;
  std::deque<InSlice> arrived;
};

/// Slices travel to and from ranks of other islands.
class Island final : public LocalTransport, private SliceLink {
 public:
  Island(RankId rank, Segments segments, const Topology& topology, std::shared_ptr<std::vector<Inbox>> inboxes)
      : LocalTransport(rank, std::move(segments)),
        topology_(topology),
        inboxes_(std::move(inboxes)),
        buffers_(kMostOpen, [bell = bell_of(rank)] { bell->ring(); }) {}

  [[nodiscard]] HostId host(RankId peer) const override { return HostId(topology_.node(peer).value); }
  [[nodiscard]] NicId nic(RankId peer) const override { return NicId(peer.value); }
  [[nodiscard]] std::byte* peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const override {
    SHUNT_CHECK(host(peer) == host(rank()));
    return LocalTransport::peer_pointer(peer, offset, bytes);
  }
  [[nodiscard]] SliceLink* slices() override { return this; }

  using LocalTransport::poll;
  using LocalTransport::post;

 private:
  // Few, so that tests often run out of them.
  static constexpr std::int32_t kMostOpen = 16;

  std::optional<OutSlice> open(std::size_t bytes) override { return buffers_.open(bytes); }

  void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) override {
    Inbox& inbox = (*inboxes_)[peer.index()];
    {
      const std::lock_guard lock(inbox.mutex);
      inbox.arrived.push_back({rank(), tag, slice.bytes.first(bytes), std::move(slice.owner)});
    }
    bell_of(peer)->ring();
  }

  bool poll(InSlice& slice) override {
    Inbox& inbox = (*inboxes_)[rank().index()];
    {
      const std::lock_guard lock(inbox.mutex);
      if (inbox.arrived.empty()) return false;
      slice = std::move(inbox.arrived.front());
      inbox.arrived.pop_front();
    }
    // A copy, as over a network: the sender's few buffers must be free before this rank uses what is in them.
    const auto copy = std::make_shared<std::vector<std::byte>>(slice.bytes.begin(), slice.bytes.end());
    slice.bytes = *copy;
    slice.owner = copy;
    return true;
  }

  // Threads of one process trust each other.
  void expect(RankId, std::int64_t, std::size_t) override {}

  Topology topology_;
  std::shared_ptr<std::vector<Inbox>> inboxes_;
  SliceBuffers buffers_;  // keeps its bell alive, as receivers may free slices later
};

}  // namespace

std::vector<std::shared_ptr<Transport>> join_islands(const Topology& topology) {
  const auto num_ranks = static_cast<std::size_t>(topology.num_ranks());
  const auto segments = LocalTransport::anonymous_segments(topology.num_ranks());
  const auto inboxes = std::make_shared<std::vector<Inbox>>(num_ranks);
  std::vector<std::shared_ptr<Transport>> ends;
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    ends.push_back(std::make_shared<Island>(RankId(rank), segments, topology, inboxes));
  return ends;
}

LocalTransport::Segments segments_of(const std::string& world, std::size_t num_ranks) {
  static std::mutex mutex;  // guards what follows
  static std::map<std::string, std::weak_ptr<LocalTransport::Segments::element_type>> worlds;
  const std::lock_guard lock(mutex);
  std::erase_if(worlds, [](const auto& entry) { return entry.second.expired(); });
  auto known = worlds[world].lock();
  if (!known) worlds[world] = known = LocalTransport::anonymous_segments(static_cast<std::int32_t>(num_ranks));
  return known;
}

std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks) {
  const auto segments = LocalTransport::anonymous_segments(num_ranks);
  std::vector<std::shared_ptr<Transport>> ends;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank)
    ends.push_back(std::make_shared<LocalTransport>(RankId(rank), segments));
  return ends;
}

}  // namespace shunt::inproc
