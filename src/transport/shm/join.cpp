#include "transport/shm/join.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/missing_ranks.hpp"
#include "transport/shm/sentinel.hpp"
#include "transport/shm/socket.hpp"

namespace shunt::shm {
namespace {

using Clock = std::chrono::steady_clock;

// How often to ask whether the larger world has a fault.
constexpr std::chrono::milliseconds kBetweenQuestions{20};

/// What a rank holds of one peer once all have met.
struct Peer {
  Descriptor segment;
  Descriptor socket;
};

/// The user is part of it: equal job names of two users are two jobs.
std::uint64_t hash_of(const std::string& job) {
  return Hasher().add(std::uint64_t{geteuid()}).add_all<char>(std::span<const char>(job.data(), job.size())).value();
}

void throw_if_faulty(const JoinOptions& options) {
  if (!options.fault) return;
  if (const auto known = options.fault()) throw Error(known->code, known->text);
}

/// Rank 0's side of the meeting.
class Host {
 public:
  Host(const JoinOptions& options, Deadline deadline)
      : options_(options), deadline_(deadline), listener_(listen_at(meeting_place(options.job))) {}

  /// Every other rank's socket and segment, by rank.
  std::vector<Peer> meet(const Segment& own) {
    try {
      gather();
      return introduce_all(own);
    } catch (const Error& error) {
      refuse_all(error);
      throw;
    }
  }

 private:
  /// A process that has connected. It has no rank until it has said who it is; one that stays silent delays nobody.
  struct Guest {
    Descriptor connection;
    RankId rank;
    Descriptor segment;
  };

  void gather() {
    while (!missing_ranks().empty()) {
      std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
      for (const Guest& guest : guests_) entries.push_back({guest.connection.get(), POLLIN, 0});
      if (!await(entries))
        fail(ErrorCode::deadline, "rank {} waited {} ms in vain for these of {} ranks: {}", host_name(),
             options_.join_limit.count(), options_.size, list_some(names_of(missing_ranks())));
      for (std::size_t i = 0; i < guests_.size(); ++i)
        if (entries[i + 1].revents != 0 && !admit(guests_[i])) guests_[i].connection = Descriptor();
      std::erase_if(guests_, [](const Guest& guest) { return !guest.connection.valid(); });
      if (entries.front().revents == 0) continue;
      if (auto connection = accept_from(listener_)) guests_.push_back({std::move(*connection), RankId(), Descriptor()});
    }
  }

  /// Guests leave the larger world's faults to this rank: were they to go by themselves, others would take them for the
  /// reason.
  bool await(std::span<pollfd> entries) const {
    for (;;) {
      const Deadline next = options_.fault ? std::min(deadline_, Clock::now() + kBetweenQuestions) : deadline_;
      if (wait_ready(entries, next)) return true;
      if (next == deadline_) return false;
      throw_if_faulty(options_);
    }
  }

  [[nodiscard]] std::vector<std::int32_t> missing_ranks() const {
    std::vector<std::int32_t> missing;
    for (std::int32_t rank = 1; rank < options_.size; ++rank)
      if (!is_here(RankId(rank))) missing.push_back(rank);
    return missing;
  }

  [[nodiscard]] RankId host_name() const { return options_.name(RankId(0)); }
  [[nodiscard]] std::vector<std::int32_t> names_of(std::vector<std::int32_t> ranks) const {
    for (std::int32_t& rank : ranks) rank = options_.name(RankId(rank)).value;
    return ranks;
  }

  [[nodiscard]] bool is_here(RankId rank) const {
    return std::any_of(guests_.begin(), guests_.end(), [&](const Guest& guest) { return guest.rank == rank; });
  }

  /// Hears who the guest is; false for one that does not belong to the job.
  bool admit(Guest& guest) {
    // A rank that has said who it is says nothing more: its connection has closed.
    if (guest.rank.valid()) fail_ended(guest);
    auto received = receive_parcel(guest.connection, deadline_);
    if (!received || received->parcel.job_hash != hash_of(options_.job) || !received->first.valid()) return false;
    const Parcel& parcel = received->parcel;
    const RankId rank(parcel.rank);
    if (parcel.size != options_.size)
      fail(ErrorCode::mismatch, "rank {} believes in {} ranks, rank {} in {}", options_.name(rank), parcel.size,
           host_name(), options_.size);
    if (rank.value < 1 || rank.value >= options_.size || is_here(rank))
      fail(ErrorCode::mismatch, "a second process says that it is rank {}", options_.name(rank));
    guest.rank = rank;
    guest.segment = std::move(received->first);
    return true;
  }

  std::vector<Peer> introduce_all(const Segment& own) {
    std::erase_if(guests_, [](const Guest& guest) { return !guest.rank.valid(); });
    std::sort(guests_.begin(), guests_.end(), [](const Guest& a, const Guest& b) { return a.rank < b.rank; });
    std::vector<Peer> peers(guests_.size() + 1);
    for (std::size_t i = 0; i < guests_.size(); ++i)
      for (std::size_t j = i + 1; j < guests_.size(); ++j) introduce(guests_[i], guests_[j]);
    for (std::size_t i = 0; i < guests_.size(); ++i) {
      auto [ours, theirs] = socket_pair();
      tell(guests_[i], RankId(0), own.fd(), theirs);
      peers[i + 1] = {std::move(guests_[i].segment), std::move(ours)};
    }
    // Who begins watches the others. Had they begun before, and one ended now, they would find this rank gone too. Who
    // has ended since is for them to find.
    for (const Guest& guest : guests_) (void)send_parcel(guest.connection, word());
    return peers;
  }

  /// Gives both a socket to each other and each other's segment.
  void introduce(const Guest& a, const Guest& b) {
    const auto [socket_a, socket_b] = socket_pair();
    tell(a, b.rank, b.segment.get(), socket_a);
    tell(b, a.rank, a.segment.get(), socket_b);
  }

  void tell(const Guest& guest, RankId about, int segment, const Descriptor& socket) {
    Parcel parcel = word();
    parcel.rank = about.value;
    if (!send_parcel(guest.connection, parcel, segment, socket.get())) fail_ended(guest);
  }

  /// That the world begins; or the beginning of another word.
  [[nodiscard]] Parcel word() const { return {.job_hash = hash_of(options_.job), .size = options_.size}; }

  [[noreturn]] void fail_ended(const Guest& guest) const {
    fail(ErrorCode::peer_lost, "rank {} ended while the ranks were meeting", options_.name(guest.rank));
  }

  void refuse_all(const Error& error) {
    try {
      hear_whoever_has_come();
    } catch (const Error&) {
      // There are no more descriptors, say. Those who are known hear it nevertheless.
    }
    Parcel parcel = word();
    parcel.refusal_code = error.code();
    std::strncpy(parcel.refusal.data(), error.what(), parcel.refusal.size() - 1);
    for (const Guest& guest : guests_) (void)send_parcel(guest.connection, parcel);
  }

  /// A connection that is closed with words unread would be reset, and what is said there might not be heard.
  void hear_whoever_has_come() {
    pollfd entry = {listener_.get(), POLLIN, 0};
    // As many as the job has, lest strangers who come again and again hold it up.
    for (std::int32_t i = 1; i < options_.size && wait_ready(std::span(&entry, 1), Clock::now()); ++i)
      if (auto connection = accept_from(listener_)) guests_.push_back({std::move(*connection), RankId(), Descriptor()});
    for (const Guest& guest : guests_)
      if (!guest.rank.valid()) (void)receive_parcel(guest.connection, Clock::now());
  }

  const JoinOptions& options_;
  Deadline deadline_;
  Descriptor listener_;
  std::vector<Guest> guests_;
};

/// The texts of a guest begin with both.
struct Names {
  explicit Names(const JoinOptions& options) : own(options.name(options.rank)), host(options.name(RankId(0))) {}
  RankId own;
  RankId host;
};

Descriptor find_host(const JoinOptions& options, const Names& names) {
  const Deadline deadline = Clock::now() + options.join_limit;
  for (;;) {
    if (auto connection = connect_to(meeting_place(options.job))) return std::move(*connection);
    if (Clock::now() >= deadline)
      fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank {} of {}", names.own, options.join_limit.count(),
           names.host, options.size);
    throw_if_faulty(options);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

[[noreturn]] void fail_host_ended(const Names& names) {
  fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were meeting", names.own, names.host);
}

ReceivedParcel hear_from_host(const Descriptor& host, const JoinOptions& options, const Names& names,
                              Deadline deadline) {
  auto received = receive_parcel(host, deadline);
  if (!received) received = receive_parcel(host, Clock::now());  // behind the news that the host is gone may be why
  if (!received && Clock::now() >= deadline)
    fail(ErrorCode::deadline, "rank {} has met rank {}, which then said nothing for {} ms", names.own, names.host,
         options.join_limit.count());
  if (!received || received->parcel.job_hash != hash_of(options.job)) fail_host_ended(names);
  if (auto& refusal = received->parcel.refusal; refusal.front() != '\0') {
    refusal.back() = '\0';
    throw Error(received->parcel.refusal_code, refusal.data());
  }
  return std::move(*received);
}

std::vector<Peer> meet_at_host(const JoinOptions& options, const Segment& own) {
  const Names names(options);
  const Descriptor host = find_host(options, names);
  const Deadline deadline = Clock::now() + options.join_limit + kPatienceWithHost;
  const Parcel self{.job_hash = hash_of(options.job), .rank = options.rank.value, .size = options.size};
  (void)send_parcel(host, self, own.fd());  // or the host is gone, and has said why
  std::vector<Peer> peers(static_cast<std::size_t>(options.size));
  for (std::int32_t i = 1; i < options.size; ++i) {
    ReceivedParcel received = hear_from_host(host, options, names, deadline);
    const std::int32_t about = received.parcel.rank;
    if (about < 0 || about >= options.size || !received.first.valid() || !received.second.valid())
      fail(ErrorCode::mismatch, "rank {}: rank {} introduced a rank {} of {}", names.own, names.host, about,
           options.size);
    peers[static_cast<std::size_t>(about)] = {std::move(received.first), std::move(received.second)};
  }
  (void)hear_from_host(host, options, names, deadline);  // that all know all
  return peers;
}

/// A peer's segment must have room for what this rank will read and write there.
Segment attach_segment(Descriptor& descriptor, const JoinOptions& options, RankId peer) {
  if (!descriptor.valid())
    fail(ErrorCode::mismatch, "rank {} introduced no rank {}", options.name(RankId(0)), options.name(peer));
  Segment segment = Segment::attach(descriptor.release());
  if (segment.bytes() < Control::bytes(options.size))
    fail(ErrorCode::mismatch, "the segment of rank {} has {} bytes only", options.name(peer), segment.bytes());
  return segment;
}

}  // namespace

std::string meeting_place(const std::string& job) { return fmt::format("shunt/{:016x}", hash_of(job)); }

std::shared_ptr<LocalTransport> join(const JoinOptions& options) {
  Segment own = Segment::shareable(Segment::default_bytes(options.size),
                                   fmt::format("shunt-rank-{}", options.name(options.rank)));
  std::vector<Peer> peers =
      options.rank.value == 0 ? Host(options, Clock::now() + options.join_limit).meet(own) : meet_at_host(options, own);

  auto segments = std::make_shared<std::vector<Segment>>();
  std::vector<Descriptor> sockets;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    segments->push_back(RankId(rank) == options.rank ? std::move(own)
                                                     : attach_segment(peers[rank].segment, options, RankId(rank)));
    sockets.push_back(std::move(peers[rank].socket));
  }
  auto transport = std::make_shared<LocalTransport>(options.rank, std::move(segments), options.names);
  transport->watch_with(std::make_unique<Sentinel>(*transport, std::move(sockets), options.liveness_limit));
  return transport;
}

}  // namespace shunt::shm
