// What any thread may ask of a link; link_thread.cpp is what its own thread does.
#include "transport/far/link.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "core/fail.hpp"
#include "core/start_thread.hpp"
#include "transport/far/link_parts.hpp"

namespace shunt::far {
namespace {

using Clock = std::chrono::steady_clock;

// Buffers of this rank on their way at a time: so many, and so many more per peer, as some peers may be slow.
constexpr std::size_t kOpen = 64, kOpenPerPeer = 4;
constexpr std::size_t kMostFaultText = 1000;

}  // namespace

Link::Link(std::unique_ptr<Carrier> carrier, LinkOptions options, Listener listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      peers_(static_cast<std::size_t>(options_.size)),
      wake_(std::make_shared<Wake>()),
      buffers_(static_cast<std::int32_t>(kOpen + kOpenPerPeer * options_.contacts.size()), listener_.on_arrival),
      carrier_(std::move(carrier)) {
  for (const Contact& contact : options_.contacts) {
    auto& peer = peers_[contact.rank.index()];
    peer = std::make_unique<Peer>();
    peer->rank = contact.rank;
    peer->session_there = contact.session_there;
    peer->session_here = contact.session_here;
  }
  carrier_->connect(options_.rank, options_.contacts, *this, wake_);
  thread_ = start_thread(fmt::format("the network thread of rank {}", options_.rank), [this] { run(); });
}

Link::~Link() {
  leave();
  is_stopping_ = true;
  wake_->ring();
  thread_.join();
}

void Link::greet_all(std::chrono::milliseconds limit, const std::function<std::optional<Fault>()>& fault) {
  const auto deadline = Clock::now() + limit;
  std::vector<const Peer*> silent;
  is_greeting_ = true;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    queue(make_packet(peer->rank, Kind::ping, {}));
    if (peer->awaits_answer.exchange(false)) queue(make_packet(peer->rank, Kind::alive, {}));
    silent.push_back(peer.get());
  }
  for (;;) {
    const auto is_greeted = [](const Peer* peer) { return peer->has_asked && peer->has_answered; };
    std::erase_if(silent, is_greeted);
    if (silent.empty()) break;
    // Whoever leaves early was greeted before, if all went well. Otherwise it may have said why: looked for afterwards.
    const auto gone = std::ranges::find_if(
        silent, [&](const Peer* peer) { return (peer->has_left || peer->is_broken) && !is_greeted(peer); });
    if (const auto known = fault()) throw Error(known->code, known->text);
    if (gone != silent.end())
      fail(ErrorCode::peer_lost, "rank {} left while rank {} was greeting it", (*gone)->rank, options_.rank);
    if (Clock::now() >= deadline)
      fail(ErrorCode::deadline, "rank {} has met rank {}, but can't {} over the network", options_.rank,
           silent.front()->rank, silent.front()->has_answered ? "be reached by it" : "reach it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  has_greeted_ = true;
  carrier_->refuse_strangers();
}

std::unique_ptr<Packet> Link::make_packet(RankId peer, Kind kind, std::span<const std::byte> bytes) const {
  auto packet = std::make_unique<Packet>();
  packet->to = peer;
  packet->header.session = peers_[peer.index()]->session_there;
  packet->header.from = options_.rank.value;
  packet->header.kind = kind;
  packet->small.assign(bytes.begin(), bytes.end());
  return packet;
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
  queue(make_packet(peer, Kind::message, message));
  return Post::posted;
}

bool Link::poll(Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (heard_.empty()) return false;
    auto& messages = peers_[heard_.front().index()]->messages;
    message = messages.front();
    messages.pop_front();
    // One message each, so that a busy peer can't ping_timer the others.
    if (!messages.empty()) heard_.push_back(heard_.front());
    heard_.pop_front();
  }
  if (std::int32_t& num_polled = peers_[message.from.index()]->num_polled; ++num_polled == kReadAtATime) {
    num_polled = 0;
    queue(make_packet(message.from, Kind::read, {}));
  }
  return true;
}

void Link::suspect(RankId peer) {
  Peer& state = *peers_[peer.index()];
  const std::lock_guard lock(state.mutex);
  switch (state.ping_timer.suspect(options_.liveness)) {
    case PingTimer::Next::ask: queue(make_packet(peer, Kind::ping, {})); break;
    case PingTimer::Next::wait: break;
    case PingTimer::Next::lost:
      state.is_silent = true;
      listener_.on_fault(ErrorCode::peer_lost, peer,
                         fmt::format("rank {} has not answered rank {} for {} ms (stopped, or cut off?)", peer,
                                     options_.rank, state.ping_timer.length().count()));
  }
}

bool Link::has_left(RankId peer) const {
  const Peer& state = *peers_[peer.index()];
  return state.has_left && state.num_slices_from >= state.num_slices_until_left;
}

bool Link::is_gone(RankId peer) const {
  const Peer& state = *peers_[peer.index()];
  return state.has_left || state.is_broken || state.is_silent;
}

void Link::flood(const Fault& fault) {
  is_poisoned_ = true;
  struct {
    std::int32_t code;
    std::int32_t culprit;
  } const words{static_cast<std::int32_t>(fault.code), fault.culprit.value};
  std::vector<std::byte> bytes(sizeof(words));
  std::memcpy(bytes.data(), &words, sizeof(words));
  const auto text = std::as_bytes(std::span(fault.text.data(), std::min(fault.text.size(), kMostFaultText)));
  bytes.insert(bytes.end(), text.begin(), text.end());
  for (const auto& peer : peers_)
    if (peer) queue(make_packet(peer->rank, Kind::fault, bytes));
}

void Link::leave() {
  if (has_left_.exchange(true)) return;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    const std::uint64_t num_slices = peer->num_slices_to;
    queue(make_packet(peer->rank, Kind::left, std::as_bytes(std::span(&num_slices, 1))));
  }
}

std::optional<OutSlice> Link::open(std::size_t bytes) { return buffers_.open(bytes); }

void Link::post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) {
  auto packet = make_packet(peer, Kind::slice, {});
  packet->header.engine = tag.engine;
  packet->header.sequence = tag.sequence;
  packet->header.index = tag.index;
  packet->header.is_last = tag.is_last;
  packet->slice = std::move(slice);
  packet->slice_bytes = bytes;
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
