// The side of a rendezvous that gathers contributions and sends results.
#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "core/fail.hpp"
#include "core/log.hpp"
#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

// A handshake takes two round trips; a participant that was too slow connects again.
constexpr std::chrono::seconds kHandshakeLimit{5};
// Unauthenticated connections, or as many as there are ranks if that is more, so that they can't use up all
// descriptors.
constexpr std::ptrdiff_t kMaxUnauthenticated = 256;
// Connections accepted in a row, so that the others get their turn.
constexpr int kMaxAccepted = 64;
// A participant answers a ping at once.
constexpr std::chrono::seconds kPongLimit{2};
// Log lines about refused connections; guessing tokens must not fill a disk.
constexpr int kMaxLines = 8;
// How often to call is_gone() for the missing ranks.
constexpr std::chrono::milliseconds kLivenessInterval{50};
// How long participants may take to read the last frames.
constexpr std::chrono::seconds kCloseLimit{1};
// Size of a frame of a result. The next one is made when the last one is sent, so the coordinator does not hold one
// result per participant.
constexpr std::size_t kPieceBytes = 64 * 1024;

std::vector<Descriptor> listen(const RendezvousOptions& options) {
  net::Endpoint endpoint = options.endpoint;
  for (std::uint16_t i = 0; i < options.num_ports; ++i) {
    endpoint.port = static_cast<std::uint16_t>(options.endpoint.port + i);
    if (auto listeners = net::listen_at(endpoint); !listeners.empty()) return listeners;
  }
  fail(ErrorCode::system,
       "rank {} can't listen at {}: another program does, such as another job's rank 0 or torch.distributed's store; "
       "SHUNT_MASTER_PORT can name another port",
       options.rank, net::describe(options.endpoint));
}

/// One connection. Its participant sends a hello, then a proof, and gets the coordinator's for each; from then on it
/// stands for a rank.
struct Peer {
  Hello own_hello;  // on this connection
  Deadline handshake_deadline;
  Connection connection;
  std::optional<Hello> hello{};
  bool is_refused = false;
  std::optional<net::Bytes> contribution{};  // to this round
  std::optional<Deadline> pong_deadline{};   // while another connection claims the same rank
  std::size_t num_sent = 0;                  // bytes of the result
  bool has_result = false;
  bool has_requested_result = false;  // the last one again; once on a connection

  [[nodiscard]] bool is_authenticated() const { return connection.has_frames(); }
  [[nodiscard]] RankId rank() const { return RankId(hello->rank); }

  void continue_handshake(const std::string& token) {
    if (!hello) {
      const auto bytes = connection.receive(kHelloBytes);
      if (!bytes) return;
      hello = decode_hello(*bytes);
      if (!hello) return connection.hang_up();
      connection.send(encode(own_hello));
    }
    const auto proof = connection.receive(sizeof(Digest));
    if (!proof) return;
    const Handshake handshake(token, *hello, own_hello);
    is_refused = !equal(*proof, handshake.proof_of(Role::participant));
    if (is_refused) {
      connection.send(net::pack(Verdict::refused));
      return connection.hang_up();
    }
    connection.send(net::pack(Verdict::accepted, handshake.proof_of(Role::coordinator)));
    connection.begin_frames(handshake, Role::coordinator);
  }

  void restart_result() {
    num_sent = 0;
    has_result = false;
  }
  /// Sends the next piece; false once there is none.
  bool send_piece(std::span<const std::byte> result) {
    if (has_result) return false;
    const auto rest = result.subspan(num_sent);
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    connection.send_frame(piece.empty() ? FrameKind::result_end : FrameKind::result, piece);
    num_sent += piece.size();
    has_result = piece.empty();
    return true;
  }
};

/// Never waits for a particular connection, and works inside exchange() only. An unauthenticated connection costs one
/// of at most 256 descriptors, or as many as there are ranks, for at most five seconds.
class Coordinator final : public Rendezvous {
 public:
  Coordinator(const RendezvousOptions& options, std::vector<Descriptor> listeners)
      : Rendezvous(options),
        listeners_(listeners.empty() && options.size > 1 ? listen(options) : std::move(listeners)) {}

  ~Coordinator() override {
    listeners_.clear();
    try {
      close_connections(std::nullopt, {});
    } catch (const Error&) {
      // The system refuses to wait for sockets. They are closed at once.
    }
  }

  Contributions exchange(std::span<const std::byte> mine) override {
    deadline_ = Clock::now() + limit_;
    try {
      gather();
      Contributions all = take_contributions(mine);
      send_results();
      return all;
    } catch (const Error& error) {
      listeners_.clear();
      const auto code = static_cast<std::uint32_t>(error.code());
      close_connections(FrameKind::failure, net::pack(code, net::bytes_of(error.what())));
      throw;
    }
  }

 private:
  void gather() {
    for (;;) {
      const std::vector<std::int32_t> missing = missing_ranks();
      if (missing.empty() || (may_lose_ranks() && Clock::now() >= deadline_)) {
        if (members_.empty()) require_majority();
        return;
      }
      if (Clock::now() >= deadline_)
        fail(
            ErrorCode::deadline, "rank {} waited {} ms in vain for these of {} ranks: {}{}", options_.rank,
            limit_.count(), options_.size, list_some(missing),
            num_refusals_ == 0 ? "" : fmt::format(" (and refused {} who did not know the job's token)", num_refusals_));
      serve_connections();
      drop_connections();
    }
  }

  void serve_connections() {
    std::vector<pollfd> entries;
    for (const Peer& peer : peers_) entries.push_back(peer.connection.awaited());
    for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
    if (!wait_ready(entries, next_deadline())) return;
    auto entry = entries.begin();
    for (Peer& peer : peers_)
      if (entry++->revents != 0) serve(peer);
    for (const Descriptor& listener : listeners_)
      if (entry++->revents != 0) accept_from(listener);
  }

  [[nodiscard]] Deadline next_deadline() const {
    Deadline next = options_.is_gone ? std::min(deadline_, Clock::now() + kLivenessInterval) : deadline_;
    for (const Peer& peer : peers_) {
      if (!peer.is_authenticated()) next = std::min(next, peer.handshake_deadline);
      if (peer.pong_deadline) next = std::min(next, *peer.pong_deadline);
    }
    for (const auto& [rank, until] : disconnected_) next = std::min(next, until);
    return next;
  }

  [[nodiscard]] bool is_member(RankId rank) const {
    return members_.empty() || std::ranges::binary_search(members_, rank);
  }
  /// Survivors agree on their members in the first round, so ranks may be missing from it.
  [[nodiscard]] bool may_lose_ranks() const { return options_.is_gone && members_.empty(); }

  /// A rank that two connections claim is missing until one of them is dropped.
  [[nodiscard]] std::vector<bool> present_ranks() const {
    std::vector<bool> is_here(static_cast<std::size_t>(options_.size));
    is_here[options_.rank.index()] = true;
    for (const Peer& peer : peers_)
      if (peer.is_authenticated() && peer.contribution) is_here[peer.rank().index()] = true;
    for (const Peer& peer : peers_)
      if (peer.is_authenticated() && peer.pong_deadline) is_here[peer.rank().index()] = false;
    return is_here;
  }

  [[nodiscard]] std::vector<std::int32_t> missing_ranks() const {
    const std::vector<bool> is_here = present_ranks();
    std::vector<std::int32_t> missing;
    for (std::int32_t r = 0; r < options_.size; ++r)
      if (const RankId rank(r);
          !is_here[rank.index()] && (may_lose_ranks() ? !options_.is_gone(rank) : is_member(rank)))
        missing.push_back(r);
    return missing;
  }

  /// There can't be two majorities; of two halves, the one with rank 0 counts.
  void require_majority() const {
    const std::vector<bool> is_here = present_ranks();
    const auto num_here = std::ranges::count(is_here, true);
    if (2 * num_here + (is_here[0] ? 1 : 0) <= options_.size)
      fail(ErrorCode::minority,
           "only {} of {} ranks found each other; a world is rebuilt by more than half of them, or by a "
           "half with rank 0 in it",
           num_here, options_.size);
  }

  void accept_from(const Descriptor& listener) {
    for (int i = 0; i < kMaxAccepted; ++i) {
      auto [socket, out_of_room] = net::accept_from(listener);
      if (out_of_room && !drop_oldest_unauthenticated())
        fail(ErrorCode::system, "rank {} can't open another descriptor for the connections of {} ranks", options_.rank,
             peers_.size());
      if (out_of_room) continue;
      if (!socket.valid()) return;
      const Hello own{
          .rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
      peers_.push_back({own, Clock::now() + kHandshakeLimit, Connection(std::move(socket))});
      if (std::ranges::count(peers_, false, &Peer::is_authenticated) >
          std::max<std::ptrdiff_t>(kMaxUnauthenticated, options_.size))
        drop_oldest_unauthenticated();
    }
  }

  bool drop_oldest_unauthenticated() {
    const auto oldest = std::ranges::find(peers_, false, &Peer::is_authenticated);
    if (oldest == peers_.end()) return false;
    peers_.erase(oldest);
    return true;
  }

  /// Those that are closed or have exceeded a limit. Fails once a member has not reconnected in time.
  void drop_connections() {
    const auto now = Clock::now();
    std::erase_if(peers_, [&](const Peer& peer) {
      const bool is_over = peer.connection.is_lost() || (!peer.is_authenticated() && peer.handshake_deadline <= now) ||
                           (peer.pong_deadline && *peer.pong_deadline <= now);
      if (is_over && peer.is_authenticated() && is_member(peer.rank()))
        disconnected_.emplace(peer.rank(), now + kReconnectLimit);
      return is_over;
    });
    for (const Peer& peer : peers_)
      if (peer.is_authenticated()) disconnected_.erase(peer.rank());
    const auto is_too_late = [&](const auto& entry) { return entry.second <= now; };
    if (may_lose_ranks())
      std::erase_if(disconnected_, is_too_late);
    else if (const auto found = std::ranges::find_if(disconnected_, is_too_late); found != disconnected_.end())
      fail(ErrorCode::peer_lost, "rank {} ended while the ranks were joining", found->first);
  }

  void serve(Peer& peer) {
    peer.connection.flush();
    if (!peer.is_authenticated()) {
      peer.continue_handshake(options_.token);
      if (peer.is_refused) log_refusal(peer);
      if (peer.is_authenticated()) admit(peer);
    }
    if (!peer.is_authenticated()) return;
    while (const auto frame = peer.connection.receive_frame()) handle(peer, *frame);
  }

  void log_refusal(const Peer& peer) {
    if (++num_refusals_ > kMaxLines) return;
    log("rank {} refuses {}, which identifies as rank {} but does not know the job's token{}", options_.rank,
        net::peer_name(peer.connection.socket()), peer.hello->rank,
        num_refusals_ == kMaxLines ? "; further ones are refused silently" : "");
  }

  /// The peer knows the token, so a mistake in its hello is an Error on all ranks.
  void admit(Peer& peer) {
    const Hello& hello = *peer.hello;
    if (hello.version != kProtocolVersion)
      fail(ErrorCode::mismatch,
           "rank {} speaks version {} of the protocol, rank {} version {}: they are different builds", hello.rank,
           hello.version, options_.rank, kProtocolVersion);
    if (hello.size != options_.size)
      fail(ErrorCode::mismatch, "rank {} expects {} ranks, rank {} expects {}", hello.rank, hello.size, options_.rank,
           options_.size);
    if (hello.number != options_.number)
      fail(ErrorCode::mismatch, "rank {} joins world {} of the job, rank {} world {}", hello.rank, hello.number,
           options_.rank, options_.number);
    if (hello.rank < 0 || hello.rank >= options_.size || hello.rank == options_.rank.value)
      fail(ErrorCode::mismatch, "a participant identifies as rank {} of {}", hello.rank, options_.size);
    if (!is_member(peer.rank())) return peer.connection.hang_up();  // a survivor that comes too late
    if (const std::string here = net::own_address(peer.connection.socket()); !here.empty() && !net::is_loopback(here))
      address_ = here;
    // An earlier connection of this rank may be broken without this side noticing; then no pong arrives.
    for (Peer& other : peers_) {
      if (&other == &peer || !other.is_authenticated() || other.rank() != peer.rank()) continue;
      other.connection.send_frame(FrameKind::ping);
      if (!other.pong_deadline) other.pong_deadline = Clock::now() + kPongLimit;
    }
  }

  void handle(Peer& peer, const Frame& frame) {
    if (frame.kind == FrameKind::pong && peer.pong_deadline)
      fail(ErrorCode::mismatch, "a second process identifies as rank {}", peer.rank());
    std::uint32_t round = 0;
    net::Bytes bytes;
    if (frame.kind == FrameKind::contribution && !peer.contribution && net::unpack(frame.body, round, bytes)) {
      if (round == round_) {
        peer.contribution = std::move(bytes);
        return;
      }
      // The participant has lost the last result together with its connection.
      if (round + 1 == round_ && !std::exchange(peer.has_requested_result, true)) {
        peer.restart_result();
        while (peer.send_piece(result_)) {
        }
        return;
      }
    }
    peer.connection.hang_up();
  }

  Contributions take_contributions(std::span<const std::byte> mine) {
    const std::vector<bool> is_here = present_ranks();
    std::erase_if(peers_, [&](const Peer& peer) {
      return !peer.is_authenticated() || !peer.contribution || !is_here[peer.rank().index()];
    });
    Contributions all = {{options_.rank, {mine.begin(), mine.end()}}};
    for (Peer& peer : peers_) {
      all.emplace(peer.rank(), *std::exchange(peer.contribution, std::nullopt));
      peer.restart_result();
    }
    result_ = encode(all);
    return all;
  }

  /// Until the network has taken all. A participant that loses its connection meanwhile requests the result again in
  /// the next round.
  void send_results() {
    // A time limit of its own, as the last participant may have come at the last moment.
    const Deadline deadline = Clock::now() + result_limit(limit_);
    for (;;) {
      std::vector<pollfd> entries;
      std::vector<std::int32_t> unread;
      for (Peer& peer : peers_) {
        Connection& connection = peer.connection;
        while (connection.is_flushed() && !connection.is_lost() && peer.send_piece(result_)) {
        }
        const bool is_over = connection.is_lost() || (peer.has_result && connection.is_flushed());
        entries.push_back({is_over ? -1 : connection.socket().get(), POLLOUT, 0});  // −1 is skipped by poll
        if (!is_over) unread.push_back(peer.rank().value);
      }
      if (unread.empty()) return;
      if (!wait_ready(entries, deadline))
        fail(ErrorCode::deadline,
             "rank {} waited {} ms in vain for these of {} ranks, which connected but then stopped responding: {}",
             options_.rank, result_limit(limit_).count(), options_.size, list_some(unread));
      auto entry = entries.begin();
      for (Peer& peer : peers_)
        if (entry++->revents != 0) peer.connection.flush();
    }
  }

  /// Sends a last frame, if there is one, and reads what participants have sent: closing a connection with unread bytes
  /// resets it, and the frame might be lost.
  void close_connections(std::optional<FrameKind> last, std::span<const std::byte> body) {
    std::erase_if(peers_, [](const Peer& peer) { return !peer.is_authenticated() || peer.connection.is_lost(); });
    if (last)
      for (Peer& peer : peers_) peer.connection.send_frame(*last, body);
    const Deadline deadline = Clock::now() + kCloseLimit;
    for (;;) {
      std::vector<pollfd> entries;
      for (Peer& peer : peers_) {
        if (peer.connection.is_flushed()) peer.connection.end_sending();
        entries.push_back(peer.connection.awaited());
      }
      if (entries.empty() || !wait_ready(entries, deadline) || Clock::now() >= deadline) break;
      auto entry = entries.begin();
      for (Peer& peer : peers_) {
        if (entry++->revents == 0) continue;
        peer.connection.flush();
        peer.connection.discard();
      }
      std::erase_if(peers_, [](const Peer& peer) { return peer.connection.is_lost(); });
    }
    peers_.clear();
  }

  std::vector<Descriptor> listeners_;
  Deadline deadline_;                        // of this round
  net::Bytes result_;                        // of the last round, as participants may request it again
  std::list<Peer> peers_;                    // oldest first
  std::map<RankId, Deadline> disconnected_;  // until when these ranks may reconnect
  int num_refusals_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> make_coordinator(const RendezvousOptions& options, std::vector<Descriptor> listeners) {
  return std::make_unique<Coordinator>(options, std::move(listeners));
}

}  // namespace shunt::bootstrap
