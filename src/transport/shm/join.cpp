#include "transport/shm/join.hpp"

#include <thread>
#include <vector>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/shm/sentinel.hpp"
#include "transport/shm/socket.hpp"

namespace shunt::shm {
namespace {

using Clock = std::chrono::steady_clock;

/// What a rank holds of one peer once all have met.
struct Peer {
  Descriptor segment;
  Descriptor socket;
};

std::string meeting_place(const std::string& job) { return "shunt/" + job; }

std::uint64_t hash_of(const std::string& job) {
  return Hasher().add_all<char>(std::span<const char>(job.data(), job.size())).value();
}

std::string missing_ranks(const std::vector<Descriptor>& connections) {
  std::string text;
  for (std::size_t rank = 1; rank < connections.size(); ++rank)
    if (!connections[rank].valid()) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

/// Rank 0's side of the meeting: the connection and segment of every other rank.
class Host {
 public:
  Host(const JoinOptions& options, Deadline deadline)
      : options_(options),
        deadline_(deadline),
        listener_(listen_at(meeting_place(options.job))),
        connections_(static_cast<std::size_t>(options.size)),
        segments_(connections_.size()) {}

  std::vector<Peer> meet(const Segment& own) {
    gather();
    std::vector<Peer> peers(connections_.size());
    for (std::size_t i = 0; i < connections_.size(); ++i)
      for (std::size_t j = i + 1; j < connections_.size(); ++j) introduce(i, j, own, peers);
    for (std::size_t rank = 1; rank < peers.size(); ++rank) peers[rank].segment = std::move(segments_[rank]);
    return peers;
  }

 private:
  void gather() {
    for (std::int32_t missing = options_.size - 1; missing > 0;) {
      auto connection = accept_from(listener_, deadline_);
      if (!connection)
        fail(ErrorCode::deadline, "rank 0 waited {} ms in vain for these of {} ranks: {}", options_.join_limit.count(),
             options_.size, missing_ranks(connections_));
      auto received = receive_parcel(*connection, deadline_);
      if (!received || received->parcel.job_hash != hash_of(options_.job)) continue;
      const Parcel& parcel = received->parcel;
      if (parcel.size != options_.size)
        fail(ErrorCode::mismatch, "rank {} believes in {} ranks, rank 0 in {}", parcel.rank, parcel.size,
             options_.size);
      if (parcel.rank < 1 || parcel.rank >= options_.size ||
          connections_[static_cast<std::size_t>(parcel.rank)].valid())
        fail(ErrorCode::mismatch, "a second process says that it is rank {}", parcel.rank);
      connections_[static_cast<std::size_t>(parcel.rank)] = std::move(*connection);
      segments_[static_cast<std::size_t>(parcel.rank)] = std::move(received->first);
      --missing;
    }
  }

  /// Gives i and j a socket to each other and each other's segment.
  void introduce(std::size_t i, std::size_t j, const Segment& own, std::vector<Peer>& peers) {
    auto [end_i, end_j] = socket_pair();
    const auto tell = [&](std::size_t to, std::size_t about, int segment, int socket) {
      const Parcel parcel{hash_of(options_.job), static_cast<std::int32_t>(about), options_.size};
      if (!send_parcel(connections_[to], parcel, segment, socket))
        fail(ErrorCode::peer_lost, "rank {} ended while the ranks were meeting", to);
    };
    if (i == 0) {
      peers[j].socket = std::move(end_i);
      tell(j, 0, own.fd(), end_j.get());
    } else {
      tell(i, j, segments_[j].get(), end_i.get());
      tell(j, i, segments_[i].get(), end_j.get());
    }
  }

  const JoinOptions& options_;
  Deadline deadline_;
  Descriptor listener_;
  std::vector<Descriptor> connections_;
  std::vector<Descriptor> segments_;
};

Descriptor find_host(const JoinOptions& options, Deadline deadline) {
  for (;;) {
    if (auto connection = connect_to(meeting_place(options.job))) return std::move(*connection);
    if (Clock::now() >= deadline)
      fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank 0 of {}", options.rank,
           options.join_limit.count(), options.size);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::vector<Peer> meet_at_host(const JoinOptions& options, Deadline deadline, const Segment& own) {
  const Descriptor host = find_host(options, deadline);
  std::vector<Peer> peers(static_cast<std::size_t>(options.size));
  if (!send_parcel(host, {hash_of(options.job), options.rank.value, options.size}, own.fd()))
    fail(ErrorCode::peer_lost, "rank 0 ended while the ranks were meeting");
  for (std::int32_t i = 1; i < options.size; ++i) {
    auto received = receive_parcel(host, deadline);
    const bool sound = received && received->parcel.job_hash == hash_of(options.job) && received->parcel.rank >= 0 &&
                       received->parcel.rank < options.size && received->first.valid() && received->second.valid();
    if (!sound)
      fail(ErrorCode::peer_lost, "rank {}: rank 0 gave up the meeting (another rank missing or mismatched?)",
           options.rank);
    Peer& peer = peers[static_cast<std::size_t>(received->parcel.rank)];
    peer.segment = std::move(received->first);
    peer.socket = std::move(received->second);
  }
  return peers;
}

}  // namespace

std::shared_ptr<Transport> join(const JoinOptions& options) {
  const Deadline deadline = Clock::now() + options.join_limit;
  Segment own = Segment::shareable(Segment::default_bytes(options.size), fmt::format("shunt-rank-{}", options.rank));
  std::vector<Peer> peers =
      options.rank.value == 0 ? Host(options, deadline).meet(own) : meet_at_host(options, deadline, own);

  auto segments = std::make_shared<std::vector<Segment>>();
  std::vector<Descriptor> sockets;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    segments->push_back(RankId(rank) == options.rank ? std::move(own) : Segment::attach(peers[rank].segment.release()));
    sockets.push_back(std::move(peers[rank].socket));
  }
  auto transport = std::make_shared<LocalTransport>(options.rank, std::move(segments));
  transport->watch_with(std::make_unique<Sentinel>(*transport, std::move(sockets), options.liveness_limit));
  return transport;
}

}  // namespace shunt::shm
