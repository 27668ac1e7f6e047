// The functions of a link that any thread may call; link_thread.cpp has those of its own thread.
#include "transport/far/link.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "core/start_thread.hpp"

namespace shunt::far {
namespace {

using Clock = std::chrono::steady_clock;

// Buffers that may be on their way at a time: a base, and some more per peer, as peers may be slow.
constexpr std::size_t kOpen = 64, kOpenPerPeer = 4;
constexpr std::size_t kMostFaultText = 1000;

}  // namespace

Link::Link(std::unique_ptr<Carrier> carrier, std::vector<Contact> contacts, std::chrono::milliseconds liveness,
           Transport& world)
    : self_(world.rank()),
      contacts_(std::move(contacts)),
      liveness_(liveness),
      world_(world),
      peers_(static_cast<std::size_t>(world.size())),
      wake_(std::make_shared<Wake>()),
      buffers_(static_cast<std::int32_t>(kOpen + kOpenPerPeer * contacts_.size()), [&world] { world.wake(); }),
      carrier_(std::move(carrier)) {
  for (const Contact& contact : contacts_) peers_[contact.rank.index()] = std::make_unique<Peer>(contact);
  carrier_->connect(self_, contacts_, *this, wake_);
  thread_ = start_thread(fmt::format("the network thread of rank {}", self_), [this] { run(); });
}

Link::~Link() {
  leave();
  is_stopping_ = true;
  wake_->ring();
  thread_.join();
}

void Link::connect_all(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::vector<const Peer*> pending;
  is_connecting_ = true;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    queue(make_packet(peer->contact.rank, Kind::ping));
    if (peer->awaits_answer.exchange(false)) queue(make_packet(peer->contact.rank, Kind::alive));
    pending.push_back(peer.get());
  }
  for (;;) {
    const auto is_connected = [](const Peer* peer) { return peer->has_asked && peer->has_answered; };
    std::erase_if(pending, is_connected);
    if (pending.empty()) break;
    // A peer that leaves now has failed to join, and may have sent its fault before: look for the fault afterwards.
    const auto gone = std::ranges::find_if(
        pending, [&](const Peer* peer) { return (peer->has_left || peer->is_broken) && !is_connected(peer); });
    if (const auto known = world_.fault()) throw Error(known->code, known->text);
    if (gone != pending.end())
      fail(ErrorCode::peer_lost, "rank {} left while rank {} was connecting to it", (*gone)->contact.rank, self_);
    if (Clock::now() >= deadline)
      fail(ErrorCode::deadline, "rank {} has joined with rank {}, but can't {} over the network", self_,
           pending.front()->contact.rank, pending.front()->has_answered ? "be reached by it" : "reach it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_connected_ = true;
  carrier_->stop_accepting();
}

std::unique_ptr<Packet> Link::make_packet(RankId peer, Kind kind, net::Bytes bytes) const {
  const Header header{.session = peers_[peer.index()]->contact.session_there, .from = self_.value, .kind = kind};
  return std::make_unique<Packet>(Packet{.to = peer, .header = header, .small = std::move(bytes)});
}

void Link::queue(std::unique_ptr<Packet> packet) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = outgoing_.empty();
    outgoing_.push_back(std::move(packet));
  }
  if (was_empty) wake_->ring();
}

Post Link::post(RankId peer, std::span<const std::byte> message) {
  std::atomic<std::int32_t>& num_unread = peers_[peer.index()]->num_unread;
  if (num_unread >= kMostUnread) return Post::again;
  ++num_unread;
  queue(make_packet(peer, Kind::message, {message.begin(), message.end()}));
  return Post::posted;
}

bool Link::poll(Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (readable_.empty()) return false;
    auto& messages = peers_[readable_.front().index()]->messages;
    message = messages.front();
    messages.pop_front();
    // One message at a time from each peer, so that a busy one can't starve the others.
    if (!messages.empty()) readable_.push_back(readable_.front());
    readable_.pop_front();
  }
  if (std::int32_t& num_polled = peers_[message.from.index()]->num_polled; ++num_polled == kReadAtATime) {
    num_polled = 0;
    queue(make_packet(message.from, Kind::read));
  }
  return true;
}

void Link::suspect(RankId peer) {
  Peer& state = *peers_[peer.index()];
  state.ping_timer.suspect(
      liveness_, [&] { queue(make_packet(peer, Kind::ping)); },
      [&](auto milliseconds) {
        state.is_silent = true;
        world_.report(ErrorCode::peer_lost, peer,
                      fmt::format("rank {} has not answered rank {} for {} ms (stopped, or cut off?)", peer, self_,
                                  milliseconds));
      });
}

bool Link::has_left(RankId peer) const {
  const Peer& state = *peers_[peer.index()];
  return state.has_left && state.has_all_slices();
}

bool Link::is_gone(RankId peer) const {
  const Peer& state = *peers_[peer.index()];
  return state.has_left || state.is_broken || state.is_silent;
}

void Link::flood(const Fault& fault) {
  const auto text = std::string_view(fault.text).substr(0, kMostFaultText);
  const auto bytes = net::pack(static_cast<std::int32_t>(fault.code), fault.culprit.value, net::bytes_of(text));
  for (const auto& peer : peers_)
    if (peer) queue(make_packet(peer->contact.rank, Kind::fault, bytes));
}

void Link::leave() {
  if (has_left_.exchange(true)) return;
  // Another rank of this machine may send the fault too, but it has to arrive before this rank's `left`.
  if (const auto known = world_.fault()) flood(*known);
  for (const auto& peer : peers_)
    if (peer) queue(make_packet(peer->contact.rank, Kind::left, net::pack(peer->num_slices_to.load())));
}

void Link::post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) {
  auto packet = make_packet(peer, Kind::slice);
  packet->header.engine = tag.engine;
  packet->header.sequence = tag.sequence;
  packet->header.index = tag.index;
  packet->header.is_last = tag.is_last;
  packet->slice = {slice.bytes.first(bytes), std::move(slice.owner)};
  ++peers_[peer.index()]->num_slices_to;
  queue(std::move(packet));
}

bool Link::poll(InSlice& slice) {
  const std::lock_guard lock(mutex_);
  if (slices_.empty()) return false;
  slice = std::move(slices_.front());
  slices_.pop_front();
  return true;
}

void Link::expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) {
  Peer& state = *peers_[peer.index()];
  state.most_slice_bytes = bytes_each;
  state.num_expected += num_slices;
}

}  // namespace shunt::far
