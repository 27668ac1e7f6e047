// NCCL between nodes: joining, and an operation's traffic in rounds.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "core/fail.hpp"
#include "engine/cuda/cluster/far_route.hpp"
#include "engine/world_impl.hpp"

namespace shunt::device {
namespace {

/// Exchanged by ranks before they join.
struct Offer {
  nccl::UniqueId id{};
  std::uint64_t batch_bytes = 0;
  ErrorCode code{};
  std::array<char, 256> refusal{};  // why this rank can't join; empty if it can
};

/// Works in rounds: packs one batch per peer, exchanges them as one NCCL group, unpacks. Batch n between two ranks is
/// sent in round n on both, so no round waits for a later round of another rank. At the end ranks exchange empty slices
/// by the world's own network: until then each counts as awaited, which NCCL does not show the host.
class NcclRoute final : public FarRoute {
 public:
  NcclRoute(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic)
      : network_(turn->network()), turn_(std::move(turn)), peers_(std::move(traffic)) {
    for (const PeerTraffic& peer : peers_) {
      peer.channel->begin_sending();
      peer.channel->begin_receiving();
    }
  }

  Work pump(Lane& lane) override {
    if (is_all_launched()) {
      (void)network_->is_idle();  // throws if what was launched has failed: no other call reports it
      return Work::soon;
    }
    if (!turn_->has_come() || !are_all_here()) return Work::idle;
    if (is_exchanging_) {
      if (!has_started()) return Work::soon;
      for (const PeerTraffic& peer : peers_) launch(peer.in[run_], network_->batch_from(peer.peer));
      is_exchanging_ = false;
      ++round_;
    }
    while (run_ < kRuns && !is_exchanging_) {
      is_exchanging_ = begin_round(lane);
      if (is_exchanging_) continue;
      ++run_;
      round_ = 0;
    }
    if (run_ == kRuns) turn_.reset();
    return Work::moved;
  }

  bool is_all_launched() override { return turn_ == nullptr; }

  bool finish() override {
    bool is_finished = true;
    for (const PeerTraffic& peer : peers_) {
      SliceChannel& channel = *peer.channel;
      if (channel.is_sending() && channel.room() > 0) channel.post_slice({}, 0, true);
      if (const InSlice* const last = channel.front_slice()) {
        if (!last->bytes.empty() || !last->tag.is_last) channel.refuse("sent rows beside NCCL");
        channel.pop_slice();
      }
      is_finished = is_finished && !channel.is_sending() && channel.has_ended();
    }
    return is_finished;
  }

 private:
  static constexpr std::size_t kRuns = std::tuple_size_v<decltype(PeerTraffic::out)>;

  /// True once all peers have begun this operation; before that, the exchange would make the device wait for them.
  [[nodiscard]] bool are_all_here() const {
    return std::ranges::all_of(peers_, [](const PeerTraffic& peer) { return peer.channel->room() > 0; });
  }

  /// True once NCCL has put the last exchange on the lane.
  [[nodiscard]] bool has_started() const {
    // Once connected, NCCL takes microseconds; Work::soon would cost a millisecond in every round.
    constexpr std::chrono::microseconds kMostSpin{50};
    const auto end = std::chrono::steady_clock::now() + kMostSpin;
    while (!network_->is_idle()) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  struct Batch {
    std::int64_t first = 0;
    std::int64_t count = 0;  // 0: the run is over
  };
  /// The run's batch in this round.
  [[nodiscard]] Batch batch_of(const Run& run) const {
    if (run.num_segments == 0) return {};
    const auto most = static_cast<std::int64_t>(network_->batch_bytes() / run.segment_bytes);
    const std::int64_t first = std::min(round_ * most, run.num_segments);
    return {first, std::min(most, run.num_segments - first)};
  }
  void launch(const Run& run, std::byte* memory) const {
    if (const Batch batch = batch_of(run); batch.count > 0) run.launch(batch.first, batch.count, memory);
  }

  /// Packs and exchanges; false if the run is over for all peers.
  bool begin_round(Lane& lane) {
    std::vector<NcclNetwork::Transfer> sends, receives;
    const auto add = [&](auto& transfers, RankId peer, const Run& run, std::byte* memory) {
      if (const std::int64_t count = batch_of(run).count; count > 0)
        transfers.push_back({peer, memory, static_cast<std::size_t>(count) * run.segment_bytes});
    };
    for (const PeerTraffic& peer : peers_) {
      launch(peer.out[run_], network_->batch_to(peer.peer));
      add(sends, peer.peer, peer.out[run_], network_->batch_to(peer.peer));
      add(receives, peer.peer, peer.in[run_], network_->batch_from(peer.peer));
    }
    if (sends.empty() && receives.empty()) return false;
    turn_->exchange(sends, receives, lane.stream());
    return true;
  }

  std::shared_ptr<NcclNetwork> network_;
  std::unique_ptr<NcclNetwork::Turn> turn_;  // null once everything is launched
  std::vector<PeerTraffic> peers_;
  std::size_t run_ = 0;
  std::int64_t round_ = 0;
  bool is_exchanging_ = false;
};

}  // namespace

std::shared_ptr<NcclNetwork> NcclNetwork::join(World& world, Lane& lane) {
  Offer mine{.batch_bytes = lane.buffer_bytes()};
  const nccl::Library* library = nullptr;
  std::shared_ptr<std::byte> memory;
  try {
    library = &nccl::Library::load();
    memory = lane.allocate(2 * static_cast<std::size_t>(world.size()) * lane.buffer_bytes());
    if (world.rank().value == 0 && library->GetUniqueId(&mine.id) != nccl::kSuccess)
      fail(ErrorCode::system, "NCCL: can't name a communicator");
  } catch (const Error& error) {
    mine.code = error.code();
    const std::string_view text = error.what();
    std::copy_n(text.begin(), std::min(text.size(), mine.refusal.size() - 1), mine.refusal.begin());
  }
  const auto offers = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    Offer theirs;
    if (offers[rank].size() != sizeof(theirs))
      fail(ErrorCode::mismatch, "rank {} does not join by NCCL, or by another build", rank);
    std::memcpy(&theirs, offers[rank].data(), sizeof(theirs));
    theirs.refusal.back() = '\0';
    if (theirs.refusal[0] != '\0') fail(theirs.code, "rank {} can't join by NCCL: {}", rank, theirs.refusal.data());
    if (theirs.batch_bytes != mine.batch_bytes)
      fail(ErrorCode::mismatch, "ranks {} and {} send batches of {} and {} bytes through NCCL", world.rank(), rank,
           mine.batch_bytes, theirs.batch_bytes);
    if (rank == 0) mine.id = theirs.id;
  }
  const CommContext& comm = *world.impl()->comm;
  const auto deadline = std::chrono::steady_clock::now() + comm.environment().join;
  return std::make_shared<NcclNetwork>(*library, nccl::Communicator::Place{world.rank(), world.size(), mine.id},
                                       std::move(memory), lane.buffer_bytes(), [&] {
                                         if (const auto fault = comm.transport().fault())
                                           throw Error(fault->code, fault->text);
                                         if (std::chrono::steady_clock::now() > deadline)
                                           fail(ErrorCode::deadline, "NCCL: ranks did not join within {} ms",
                                                comm.environment().join.count());
                                       });
}

std::unique_ptr<FarRoute> make_nccl_route(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic) {
  return std::make_unique<NcclRoute>(std::move(turn), std::move(traffic));
}

}  // namespace shunt::device
