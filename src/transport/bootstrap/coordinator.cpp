#include "transport/bootstrap/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "core/fail.hpp"
#include "core/log.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

// A handshake takes two round trips; a participant that was too slow connects again.
constexpr std::chrono::seconds kUnprovenLimit{5};
// Strangers can't take all descriptors away; of large jobs as many may shake hands at the same time as there are ranks.
constexpr std::ptrdiff_t kMaxUnproven = 256;
// Connections accepted in one turn, so that the others have theirs.
constexpr int kMaxAccepted = 64;
// A participant answers a ping at once, whatever it waits for.
constexpr std::chrono::seconds kPongLimit{2};
// Lines about refused connections; who guesses tokens may not fill a disk.
constexpr int kMaxLines = 8;
// How often to ask which of the missing are gone.
constexpr std::chrono::milliseconds kRollCall{50};
// How long participants may take to read the last word.
constexpr std::chrono::seconds kFarewellLimit{1};
// One frame of a result. A participant's next piece is made when the last one is gone, so the coordinator does not hold
// one result per participant.
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

}  // namespace

Coordinator::Coordinator(const RendezvousOptions& options, std::vector<Descriptor> listeners)
    : options_(options), listeners_(listeners.empty() ? listen(options) : std::move(listeners)) {}

Coordinator::~Coordinator() {
  listeners_.clear();
  try {
    say_farewell(std::nullopt, {});
  } catch (const Error&) {
    // The system refuses to wait for sockets. They are closed at once.
  }
}

std::vector<Contribution> Coordinator::exchange(std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  ++round_;
  limit_ = limit;
  deadline_ = Clock::now() + limit;
  try {
    gather();
    std::vector<Contribution> all = take_contributions(mine);
    hand_out();
    return all;
  } catch (const Error& error) {
    listeners_.clear();
    net::Bytes body;
    net::append(body, static_cast<std::uint32_t>(error.code()));
    net::append(body, net::bytes_of(error.what()));
    say_farewell(FrameKind::failure, body);
    throw;
  }
}

void Coordinator::gather() {
  for (;;) {
    const std::vector<std::int32_t> missing = missing_ranks();
    const bool is_roll_call = options_.is_gone && members_.empty();
    if (missing.empty() || (is_roll_call && Clock::now() >= deadline_)) {
      if (members_.empty()) expect_majority();
      return;
    }
    if (Clock::now() >= deadline_)
      fail(ErrorCode::deadline, "rank {} waited {} ms in vain for these of {} ranks: {}{}", options_.rank,
           limit_.count(), options_.size, list_some(missing), describe_refusals());
    wait_for_peers();
    drop_the_gone();
  }
}

void Coordinator::wait_for_peers() {
  std::vector<pollfd> entries;
  for (const Peer& peer : peers_) entries.push_back(peer.connection().awaited());
  for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
  if (!wait_ready(entries, next_alarm())) return;
  auto entry = entries.begin();
  for (Peer& peer : peers_)
    if (entry++->revents != 0) hear(peer);
  for (const Descriptor& listener : listeners_)
    if (entry++->revents != 0) accept_all_from(listener);
}

Deadline Coordinator::next_alarm() const {
  Deadline next = options_.is_gone ? std::min(deadline_, Clock::now() + kRollCall) : deadline_;
  for (const Peer& peer : peers_) {
    if (!peer.is_proven()) next = std::min(next, peer.patience);
    if (peer.doubted_until) next = std::min(next, *peer.doubted_until);
  }
  for (const auto& [rank, until] : departed_) next = std::min(next, until);
  return next;
}

bool Coordinator::is_member(RankId rank) const {
  return members_.empty() || std::ranges::binary_search(members_, rank);
}

/// A rank for which two have come is missing until it is clear which of them it is.
std::vector<bool> Coordinator::present_ranks() const {
  std::vector<bool> is_here(static_cast<std::size_t>(options_.size));
  is_here[options_.rank.index()] = true;
  for (const Peer& peer : peers_)
    if (peer.is_proven() && peer.contribution && !peer.doubted_until) is_here[peer.rank().index()] = true;
  for (const Peer& peer : peers_)
    if (peer.is_proven() && peer.doubted_until) is_here[peer.rank().index()] = false;
  return is_here;
}

std::vector<std::int32_t> Coordinator::missing_ranks() const {
  const std::vector<bool> is_here = present_ranks();
  const auto is_awaited = [&](RankId rank) {
    return members_.empty() ? !(options_.is_gone && options_.is_gone(rank)) : is_member(rank);
  };
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < options_.size; ++rank)
    if (!is_here[RankId(rank).index()] && is_awaited(RankId(rank))) missing.push_back(rank);
  return missing;
}

/// There can't be two majorities. Of two halves it is the one with rank 0.
void Coordinator::expect_majority() const {
  const std::vector<bool> is_here = present_ranks();
  const auto num_here = std::ranges::count(is_here, true);
  if (2 * num_here + (is_here[0] ? 1 : 0) <= options_.size)
    fail(ErrorCode::minority,
         "only {} of {} ranks found each other; a world is rebuilt by more than half of them, or by a "
         "half with rank 0 in it",
         num_here, options_.size);
}

void Coordinator::accept_all_from(const Descriptor& listener) {
  for (int i = 0; i < kMaxAccepted; ++i) {
    auto [socket, out_of_room] = net::accept_from(listener);
    if (out_of_room && !drop_oldest_unproven())
      fail(ErrorCode::system, "rank {} can't open another descriptor for the connections of {} ranks", options_.rank,
           peers_.size());
    if (out_of_room) continue;
    if (!socket.valid()) return;
    const Claim own{
        .rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
    peers_.push_back({own, Clock::now() + kUnprovenLimit, Connection(std::move(socket))});
    if (std::ranges::count_if(peers_, [](const Peer& peer) { return !peer.is_proven(); }) >
        std::max<std::ptrdiff_t>(kMaxUnproven, options_.size))
      drop_oldest_unproven();
  }
}

bool Coordinator::drop_oldest_unproven() {
  const auto oldest = std::ranges::find_if(peers_, [](const Peer& peer) { return !peer.is_proven(); });
  if (oldest == peers_.end()) return false;
  peers_.erase(oldest);
  return true;
}

void Coordinator::drop_the_gone() {
  const auto now = Clock::now();
  std::erase_if(peers_, [&](const Peer& peer) {
    const bool is_gone = peer.connection().is_lost() || (!peer.is_proven() && peer.patience <= now) ||
                         (peer.doubted_until && *peer.doubted_until <= now);
    if (is_gone && peer.is_proven() && is_member(peer.rank())) departed_.emplace(peer.rank(), now + kReturnLimit);
    return is_gone;
  });
  for (const Peer& peer : peers_)
    if (peer.is_proven()) departed_.erase(peer.rank());
  const auto has_given_up = [&](const auto& departed) { return departed.second <= now; };
  if (options_.is_gone && members_.empty())
    std::erase_if(departed_, has_given_up);
  else if (const auto found = std::ranges::find_if(departed_, has_given_up); found != departed_.end())
    fail(ErrorCode::peer_lost, "rank {} ended while the ranks were joining", found->first);
}

void Coordinator::Peer::shake_hands(const std::string& token) {
  if (!claim) {
    const auto bytes = unproven.receive(kClaimBytes);
    if (!bytes) return;
    claim = decode_claim(*bytes);
    if (!claim) return unproven.hang_up();
    unproven.send(encode(own_claim));
  }
  const auto proof = unproven.receive(sizeof(Digest));
  if (!proof) return;
  const Handshake handshake(token, *claim, own_claim);
  is_refused = !equal(*proof, handshake.proof_of(Role::participant));
  net::Bytes answer;
  net::append(answer, static_cast<std::uint8_t>(is_refused ? Verdict::refused : Verdict::accepted));
  if (!is_refused) net::append(answer, handshake.proof_of(Role::coordinator));
  unproven.send(answer);
  if (is_refused) return unproven.hang_up();
  frames.emplace(std::move(unproven), handshake, Role::coordinator);
}

void Coordinator::hear(Peer& peer) {
  peer.connection().flush();
  if (!peer.is_proven()) {
    peer.shake_hands(options_.token);
    if (peer.is_refused) report_refusal(peer);
    if (peer.is_proven()) admit(peer);
  }
  if (!peer.is_proven()) return;
  while (const auto frame = peer.frames->receive()) hear_frame(peer, *frame);
}

std::string Coordinator::describe_refusals() const {
  return num_refusals_ == 0 ? "" : fmt::format(" (and refused {} who did not know the job's token)", num_refusals_);
}

void Coordinator::report_refusal(const Peer& peer) {
  if (++num_refusals_ > kMaxLines) return;
  log("rank {} refuses {}, which says it is rank {} but does not know the job's token{}", options_.rank,
      net::peer_name(peer.connection().socket()), peer.claim->rank,
      num_refusals_ == kMaxLines ? "; further ones are refused silently" : "");
}

/// The peer knows the token, so what it claims is worth an Error on all ranks.
void Coordinator::admit(Peer& peer) {
  const Claim& claim = *peer.claim;
  if (claim.version != kProtocolVersion)
    fail(ErrorCode::mismatch,
         "rank {} speaks version {} of the protocol, rank {} version {}: they are different builds", claim.rank,
         claim.version, options_.rank, kProtocolVersion);
  if (claim.size != options_.size)
    fail(ErrorCode::mismatch, "rank {} believes in {} ranks, rank {} in {}", claim.rank, claim.size, options_.rank,
         options_.size);
  if (claim.number != options_.number)
    fail(ErrorCode::mismatch, "rank {} joins world {} of the job, rank {} world {}", claim.rank, claim.number,
         options_.rank, options_.number);
  if (claim.rank < 0 || claim.rank >= options_.size || claim.rank == options_.rank.value)
    fail(ErrorCode::mismatch, "a participant says that it is rank {} of {}", claim.rank, options_.size);
  if (!is_member(peer.rank())) return peer.connection().hang_up();  // a survivor that comes too late
  if (const std::string here = net::own_address(peer.connection().socket()); !here.empty() && !net::is_loopback(here))
    address_ = here;
  // Whoever said so before may have lost its connection without this side noticing; then it does not answer.
  for (Peer& other : peers_) {
    if (&other == &peer || !other.is_proven() || other.rank() != peer.rank()) continue;
    other.frames->send(FrameKind::ping);
    if (!other.doubted_until) other.doubted_until = Clock::now() + kPongLimit;
  }
}

void Coordinator::hear_frame(Peer& peer, const Frame& frame) {
  net::ByteReader reader(frame.body);
  if (frame.kind == FrameKind::pong && peer.doubted_until)
    fail(ErrorCode::mismatch, "a second process says that it is rank {}", peer.rank());
  if (frame.kind == FrameKind::contribution && !peer.contribution) {
    const auto round = reader.take<std::uint32_t>();
    const auto bytes = reader.take_rest();
    if (reader.ok() && round == round_) {
      peer.contribution.emplace(bytes.begin(), bytes.end());
      return;
    }
    // It has lost the last result together with its connection.
    if (reader.ok() && round + 1 == round_ && !std::exchange(peer.has_asked_again, true)) {
      peer.num_handed_out = 0;
      peer.has_result = false;
      while (hand_out_to(peer, result_)) {
      }
      return;
    }
  }
  peer.connection().hang_up();
}

std::vector<Contribution> Coordinator::take_contributions(std::span<const std::byte> mine) {
  const std::vector<bool> is_here = present_ranks();
  std::erase_if(peers_, [&](const Peer& peer) {
    return !peer.is_proven() || !peer.contribution || !is_here[peer.rank().index()];
  });
  std::vector<Contribution> all = {{options_.rank, {mine.begin(), mine.end()}}};
  for (Peer& peer : peers_) {
    all.push_back({peer.rank(), std::move(*peer.contribution)});
    peer.contribution.reset();
    peer.num_handed_out = 0;
    peer.has_result = false;
  }
  std::ranges::sort(all, {}, &Contribution::rank);
  members_.clear();
  for (const Contribution& each : all) members_.push_back(each.rank);
  result_ = encode(all);
  return all;
}

/// Sends the next piece; false once there is none.
bool Coordinator::hand_out_to(Peer& peer, std::span<const std::byte> result) {
  if (peer.has_result) return false;
  const auto rest = result.subspan(peer.num_handed_out);
  const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
  peer.frames->send(piece.empty() ? FrameKind::result_end : FrameKind::result, piece);
  peer.num_handed_out += piece.size();
  peer.has_result = piece.empty();
  return true;
}

/// Until the network has taken all. Who loses its connection meanwhile asks again in the next round.
void Coordinator::hand_out() {
  // Its own time: the last participant may have come at the last moment.
  const Deadline deadline = Clock::now() + hand_out_limit(limit_);
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<std::int32_t> unread;
    std::vector<Peer*> asked;
    for (Peer& peer : peers_) {
      Connection& connection = peer.connection();
      while (connection.is_flushed() && !connection.is_lost() && hand_out_to(peer, result_)) {
      }
      if (connection.is_lost() || (peer.has_result && connection.is_flushed())) continue;
      entries.push_back({connection.socket().get(), POLLOUT, 0});
      unread.push_back(peer.rank().value);
      asked.push_back(&peer);
    }
    if (entries.empty()) return;
    if (!wait_ready(entries, deadline))
      fail(ErrorCode::deadline,
           "rank {} waited {} ms in vain for these of {} ranks, which came but then fell silent: {}", options_.rank,
           hand_out_limit(limit_).count(), options_.size, list_some(unread));
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].revents != 0) asked[i]->connection().flush();
  }
}

/// Leaves no participant's bytes unread: closing would then reset the connection, and the word might be lost.
void Coordinator::say_farewell(std::optional<FrameKind> word, std::span<const std::byte> body) {
  std::erase_if(peers_, [](const Peer& peer) { return !peer.is_proven() || peer.connection().is_lost(); });
  if (word)
    for (Peer& peer : peers_) peer.frames->send(*word, body);
  const Deadline deadline = Clock::now() + kFarewellLimit;
  for (;;) {
    std::vector<pollfd> entries;
    for (Peer& peer : peers_) {
      if (peer.connection().is_flushed()) peer.connection().end_sending();
      entries.push_back(peer.connection().awaited());
    }
    if (entries.empty() || !wait_ready(entries, deadline) || Clock::now() >= deadline) break;
    auto entry = entries.begin();
    for (Peer& peer : peers_) {
      if (entry++->revents == 0) continue;
      peer.connection().flush();
      peer.connection().discard();
    }
    std::erase_if(peers_, [](const Peer& peer) { return peer.connection().is_lost(); });
  }
  peers_.clear();
}

}  // namespace shunt::bootstrap
