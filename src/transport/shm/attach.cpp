#include "transport/shm/attach.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>

#include "core/fail.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::shm {
namespace {

using Clock = std::chrono::steady_clock;

// Pause before a retry when the system had no room.
constexpr std::chrono::milliseconds kPause{1};
// How often to check that ranks which have not connected are alive.
constexpr std::chrono::milliseconds kProbe{500};
// Connections without a hello; beyond that the oldest are closed.
constexpr std::size_t kMaxUnidentified = 256;
constexpr int kMaxAccepted = 64;

[[noreturn]] void fail_lost(const net::Contact& peer) {
  fail(ErrorCode::peer_lost, "rank {} ended while the ranks were joining", peer.rank);
}

/// The connection to one peer.
struct PeerSocket {
  const net::Contact* contact;
  bool is_initiator;  // of two ranks the higher connects, and sends its hello first
  Descriptor socket{};
  Descriptor segment{};  // the peer's; comes with its hello
  bool has_sent_hello = false;

  [[nodiscard]] bool is_done() const { return has_sent_hello && segment.valid(); }
};

class Attachment {
 public:
  Attachment(RankId self, const std::vector<net::Contact>& ranks, std::chrono::milliseconds limit,
             const net::Listener& listener, int own_segment)
      : self_(self),
        limit_(limit),
        listener_(listener.socket),
        own_segment_(own_segment),
        deadline_(Clock::now() + limit) {
    for (const net::Contact& peer : ranks)
      if (peer.rank != self) peers_.push_back({&peer, peer.rank < self});
  }

  /// One per peer, by rank.
  std::vector<PeerSocket> run() {
    while (!is_done()) {
      const bool has_to_retry = advance();
      if (is_done()) break;
      wait(has_to_retry);
    }
    return std::move(peers_);
  }

 private:
  [[nodiscard]] bool is_done() const { return std::ranges::all_of(peers_, &PeerSocket::is_done); }

  /// Takes the steps that need no other rank; true where the system had no room.
  bool advance() {
    bool has_to_retry = false;
    for (PeerSocket& peer : peers_) {
      if (peer.is_initiator && !peer.socket.valid()) peer.socket = connect_to(*peer.contact);
      if (peer.has_sent_hello || (!peer.is_initiator && !peer.segment.valid())) continue;
      if (peer.socket.valid()) send_own_hello(peer);
      has_to_retry |= !peer.has_sent_hello;
    }
    return has_to_retry;
  }

  /// None where the peer's listener is busy.
  static Descriptor connect_to(const net::Contact& peer) {
    net::Connected connected = net::begin_to_connect({.address = peer.known_as}, "");
    if (!connected.socket.valid() && !connected.is_busy) fail_lost(peer);
    return std::move(connected.socket);
  }

  void send_own_hello(PeerSocket& peer) {
    const Sent sent = send_hello(peer.socket, {peer.contact->session_there, self_.value}, own_segment_);
    if (sent == Sent::gone) fail_lost(*peer.contact);
    peer.has_sent_hello = sent == Sent::done;
  }

  void wait(bool has_to_retry) {
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
    for (const Descriptor& each : unidentified_) entries.push_back({each.get(), POLLIN, 0});
    const std::size_t num_unidentified = unidentified_.size();
    for (const PeerSocket& peer : peers_) entries.push_back({peer.socket.get(), POLLIN, 0});  // −1 is skipped by poll
    const bool is_any_ready =
        wait_ready(entries, std::min({deadline_, next_probe_, has_to_retry ? Clock::now() + kPause : deadline_}));
    // Checked in any case, as a stream of unidentified connections must not hide that ranks are missing.
    if (Clock::now() >= deadline_) fail_waiting();
    if (Clock::now() >= next_probe_) expect_all_to_live();
    if (!is_any_ready) return;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (entries[1 + num_unidentified + i].revents != 0) receive_answer(peers_[i]);
    auto entry = entries.begin() + 1;
    std::erase_if(unidentified_, [&](Descriptor& each) { return entry++->revents != 0 && identify(each); });
    if (entries.front().revents == 0) return;
    for (int i = 0; i < kMaxAccepted; ++i) {
      net::Accepted accepted = net::accept_from(listener_);
      if (accepted.out_of_room)
        fail(ErrorCode::system, "rank {} can't open another descriptor for the ranks of its machine", self_);
      if (accepted.socket.valid()) unidentified_.push_back(std::move(accepted.socket));
    }
    while (unidentified_.size() > std::max(kMaxUnidentified, peers_.size())) unidentified_.pop_front();
  }

  /// On an identified connection nothing but the answer to an initiator's hello may arrive.
  void receive_answer(PeerSocket& peer) {
    auto received =
        peer.is_initiator && peer.has_sent_hello && !peer.segment.valid() ? receive_hello(peer.socket) : std::nullopt;
    if (!received || received->hello.session != peer.contact->session_here) fail_lost(*peer.contact);
    peer.segment = std::move(received->descriptor);
  }

  /// Takes the connection if it is an awaited peer's; true in any case, as it leaves the unidentified ones.
  bool identify(Descriptor& connection) {
    auto received = receive_hello(connection);
    if (!received) return true;
    const auto peer = std::ranges::find_if(peers_, [&](const PeerSocket& each) {
      return !each.is_initiator && !each.segment.valid() && each.contact->rank.value == received->hello.rank &&
             each.contact->session_here == received->hello.session;
    });
    if (peer == peers_.end()) return true;
    peer->socket = std::move(connection);
    peer->segment = std::move(received->descriptor);
    return true;
  }

  /// A rank's listener ends with its process.
  void expect_all_to_live() {
    next_probe_ = Clock::now() + kProbe;
    for (const PeerSocket& peer : peers_)
      if (!peer.is_initiator && !peer.segment.valid()) (void)connect_to(*peer.contact);
  }

  [[noreturn]] void fail_waiting() const {
    std::vector<std::int32_t> missing;
    for (const PeerSocket& peer : peers_)
      if (!peer.is_done()) missing.push_back(peer.contact->rank.value);
    fail(ErrorCode::deadline, "rank {} waited {} ms in vain for these ranks of its machine to share their memory: {}",
         self_, limit_.count(), bootstrap::list_some(missing));
  }

  RankId self_;
  std::chrono::milliseconds limit_;
  const Descriptor& listener_;
  int own_segment_;
  Deadline deadline_;
  Deadline next_probe_ = Clock::now() + kProbe;
  std::vector<PeerSocket> peers_;       // to each peer
  std::list<Descriptor> unidentified_;  // accepted, without a hello yet; the oldest first
};

/// A peer's segment must have room for what this rank will read and write there.
Segment map_segment(PeerSocket& peer, std::size_t num_ranks) {
  try {
    Segment segment = Segment::attach(std::move(peer.segment));
    if (segment.bytes() >= Control::bytes(num_ranks)) return segment;
    fail(ErrorCode::mismatch, "it has {} bytes only", segment.bytes());
  } catch (const Error& error) {
    fail(error.code(), "can't map the segment of rank {}: {}", peer.contact->rank, error.what());
  }
}

}  // namespace

net::Listener open_near_listener() {
  net::Listener listener = net::open_local_listener("@shunt/near/" + bootstrap::hex(bootstrap::draw_nonce()));
  net::accept_many(listener);
  return listener;
}

Attached attach(RankId self, const std::vector<net::Contact>& ranks, std::chrono::milliseconds limit,
                const net::Listener& listener) {
  const std::size_t num_ranks = ranks.size();
  Segment own = Segment::shareable(Segment::default_bytes(static_cast<std::int32_t>(num_ranks)),
                                   fmt::format("shunt-rank-{}", self));
  std::vector<PeerSocket> peers = Attachment(self, ranks, limit, listener, own.fd()).run();

  Attached attached{std::make_shared<std::vector<Segment>>(), {}};
  for (PeerSocket& peer : peers) {
    attached.segments->push_back(map_segment(peer, num_ranks));
    attached.sockets.push_back(std::move(peer.socket));
  }
  const auto place = std::ranges::find(ranks, self, &net::Contact::rank) - ranks.begin();
  attached.segments->insert(attached.segments->begin() + place, std::move(own));
  attached.sockets.emplace(attached.sockets.begin() + place);
  return attached;
}

Sent send_hello(const Descriptor& socket, const SegmentHello& hello, int fd) {
  iovec body = {const_cast<SegmentHello*>(&hello), sizeof(hello)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fd))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello))) return Sent::done;
  if (errno == ETOOMANYREFS || errno == EAGAIN || errno == EINTR) return Sent::again;
  if (errno != EPIPE && errno != ECONNRESET) fail_errno("can't send a descriptor");
  return Sent::gone;
}

std::optional<ReceivedHello> receive_hello(const Descriptor& socket) {
  ReceivedHello received;
  iovec body = {&received.hello, sizeof(received.hello)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the system closes further descriptors
  const ssize_t bytes = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
      bytes >= 0 && header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    received.descriptor = Descriptor(fd);
  }
  if (bytes != static_cast<ssize_t>(sizeof(received.hello)) || !received.descriptor.valid()) return std::nullopt;
  return received;
}

}  // namespace shunt::shm
