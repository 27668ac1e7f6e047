#include "transport/shm/attach.hpp"

#include <algorithm>
#include <list>

#include "core/fail.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/shm/heartbeat.hpp"
#include "transport/shm/local_socket.hpp"

namespace shunt::shm {
namespace {

using Clock = std::chrono::steady_clock;

// Before trying again what the system had no room for.
constexpr std::chrono::milliseconds kPause{1};
// How often to look whether ranks that have not connected are still there.
constexpr std::chrono::milliseconds kProbe{500};
// Connections that have not said who they are; then the oldest give way.
constexpr std::size_t kMostStrangers = 256;
constexpr int kMostAccepted = 64;

[[noreturn]] void fail_lost(const NearPeer& peer) {
  fail(ErrorCode::peer_lost, "rank {} ended while the ranks were joining", peer.rank);
}

/// The connection to one peer, by the steps that it takes.
struct Link {
  enum class Step { connect, greet, await_greeting, done };

  const NearPeer* peer;
  bool is_initiator;  // of two ranks the higher connects, and speaks first
  Step step;
  Descriptor socket{};
  Descriptor segment{};
};

class Attachment {
 public:
  Attachment(const AttachOptions& options, const Descriptor& listener, int own_segment)
      : options_(options), listener_(listener), own_segment_(own_segment), deadline_(Clock::now() + options.limit) {
    for (const NearPeer& peer : options.ranks) {
      if (peer.rank == options.self) continue;
      const bool is_initiator = peer.rank < options.self;
      links_.push_back({&peer, is_initiator, is_initiator ? Link::Step::connect : Link::Step::await_greeting});
    }
  }

  /// By rank of this machine; those to the own rank are none.
  std::vector<Link> run() {
    while (!is_done()) {
      const bool has_to_retry = advance();
      if (is_done()) break;
      wait(has_to_retry);
    }
    return std::move(links_);
  }

 private:
  [[nodiscard]] bool is_done() const {
    return std::ranges::all_of(links_, [](const Link& link) { return link.step == Link::Step::done; });
  }

  /// Goes on wherever this rank has to act; true where the system had no room.
  bool advance() {
    bool has_to_retry = false;
    for (Link& link : links_) {
      if (link.step == Link::Step::connect) {
        Connecting connecting = connect_to(link.peer->listener);
        has_to_retry |= connecting.is_full;
        if (!connecting.socket.valid() && !connecting.is_full) fail_lost(*link.peer);
        if (!connecting.socket.valid()) continue;
        link.socket = std::move(connecting.socket);
        link.step = Link::Step::greet;
      }
      if (link.step == Link::Step::greet) has_to_retry |= !greet(link);
    }
    return has_to_retry;
  }

  bool greet(Link& link) {
    switch (send_hello(link.socket, {link.peer->session_there, options_.self.value}, own_segment_)) {
      case Sent::again: return false;
      case Sent::gone: fail_lost(*link.peer);
      case Sent::done: link.step = link.is_initiator ? Link::Step::await_greeting : Link::Step::done;
    }
    return true;
  }

  void wait(bool has_to_retry) {
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
    for (const Descriptor& stranger : strangers_) entries.push_back({stranger.get(), POLLIN, 0});
    const std::size_t num_strangers = strangers_.size();
    for (const Link& link : links_) entries.push_back({link.socket.get(), POLLIN, 0});  // −1 is skipped by poll
    const bool is_any_ready =
        wait_ready(entries, std::min({deadline_, next_probe_, has_to_retry ? Clock::now() + kPause : deadline_}));
    // In any case: connections of strangers must not keep this rank from noticing who does not come.
    if (Clock::now() >= deadline_) fail_waiting();
    if (Clock::now() >= next_probe_) expect_all_to_live();
    if (!is_any_ready) return;
    for (std::size_t i = 0; i < links_.size(); ++i)
      if (entries[1 + num_strangers + i].revents != 0) hear(links_[i]);
    auto entry = entries.begin() + 1;
    std::erase_if(strangers_, [&](Descriptor& stranger) { return entry++->revents != 0 && identify(stranger); });
    if (entries.front().revents == 0) return;
    for (int i = 0; i < kMostAccepted; ++i)
      if (auto accepted = accept_from(listener_)) strangers_.push_back(std::move(*accepted));
    while (strangers_.size() > std::max(kMostStrangers, links_.size())) strangers_.pop_front();
  }

  /// An initiator gets its answer; everything else on a connection that stands is its end.
  void hear(Link& link) {
    auto received =
        link.is_initiator && link.step == Link::Step::await_greeting ? receive_hello(link.socket) : std::nullopt;
    if (!received || received->hello.session != link.peer->session_here) fail_lost(*link.peer);
    link.segment = std::move(received->descriptor);
    link.step = Link::Step::done;
  }

  /// Takes the connection if it is a peer's; it is not a stranger's any more in any case.
  bool identify(Descriptor& stranger) {
    auto received = receive_hello(stranger);
    if (!received) return true;
    const auto link = std::ranges::find_if(links_, [&](const Link& each) {
      return !each.is_initiator && each.step == Link::Step::await_greeting &&
             each.peer->rank.value == received->hello.rank && each.peer->session_here == received->hello.session;
    });
    if (link == links_.end()) return true;
    link->socket = std::move(stranger);
    link->segment = std::move(received->descriptor);
    link->step = Link::Step::greet;
    return true;
  }

  /// The listener of a rank goes with its process.
  void expect_all_to_live() {
    next_probe_ = Clock::now() + kProbe;
    for (const Link& link : links_) {
      if (link.is_initiator || link.step != Link::Step::await_greeting) continue;
      const Connecting probe = connect_to(link.peer->listener);
      if (!probe.socket.valid() && !probe.is_full) fail_lost(*link.peer);
    }
  }

  [[noreturn]] void fail_waiting() const {
    std::vector<std::int32_t> missing;
    for (const Link& link : links_)
      if (link.step != Link::Step::done) missing.push_back(link.peer->rank.value);
    fail(ErrorCode::deadline, "rank {} waited {} ms in vain for these ranks of its machine to share their memory: {}",
         options_.self, options_.limit.count(), bootstrap::list_some(missing));
  }

  const AttachOptions& options_;
  const Descriptor& listener_;
  int own_segment_;
  Deadline deadline_;
  Deadline next_probe_ = Clock::now() + kProbe;
  std::vector<Link> links_;          // to each peer
  std::list<Descriptor> strangers_;  // have connected, but not said who they are; the oldest first
};

/// A peer's segment must have room for what this rank will read and write there.
Segment map_segment(Link& link, std::size_t num_ranks) {
  try {
    Segment segment = Segment::attach(link.segment.release());
    if (segment.bytes() >= Control::bytes(static_cast<std::int32_t>(num_ranks))) return segment;
    fail(ErrorCode::mismatch, "it has {} bytes only", segment.bytes());
  } catch (const Error& error) {
    fail(error.code(), "can't map the segment of rank {}: {}", link.peer->rank, error.what());
  }
}

}  // namespace

AttachListener::AttachListener()
    : name_("shunt/near/" + bootstrap::hex(bootstrap::draw_nonce())), socket_(listen_at(name_)) {}

std::shared_ptr<LocalTransport> attach(const AttachOptions& options, const AttachListener& listener) {
  const std::size_t num_ranks = options.ranks.size();
  Segment own = Segment::shareable(Segment::default_bytes(static_cast<std::int32_t>(num_ranks)),
                                   fmt::format("shunt-rank-{}", options.self));
  std::vector<Link> links = Attachment(options, listener.socket(), own.fd()).run();

  RankId local;
  std::vector<RankId> names;
  auto segments = std::make_shared<std::vector<Segment>>();
  std::vector<Descriptor> sockets;
  auto link = links.begin();
  for (const NearPeer& peer : options.ranks) {
    names.push_back(peer.rank);
    if (peer.rank == options.self) {
      local = RankId(segments->size());
      segments->push_back(std::move(own));
      sockets.emplace_back();
    } else {
      segments->push_back(map_segment(*link, num_ranks));
      sockets.push_back(std::move(link++->socket));
    }
  }
  auto transport = std::make_shared<LocalTransport>(local, std::move(segments), std::move(names));
  transport->watch_with(std::make_unique<Heartbeat>(*transport, std::move(sockets), options.liveness));
  return transport;
}

}  // namespace shunt::shm
