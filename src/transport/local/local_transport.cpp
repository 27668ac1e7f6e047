#include "transport/local/local_transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt {

LocalTransport::Segments LocalTransport::anonymous_segments(std::int32_t num_ranks) {
  auto segments = std::make_shared<std::vector<Segment>>();
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    segments->push_back(Segment::anonymous(Segment::default_bytes(num_ranks)));
    // A rank that reports a fault rings all bells, also of ranks that are still joining.
    segments->back().commit(0, Control::bytes(static_cast<std::size_t>(num_ranks)));
  }
  return segments;
}

LocalTransport::LocalTransport(RankId rank, Segments segments, std::vector<RankId> members)
    : rank_(rank),
      members_(std::move(members)),
      // With more ranks than cores a spinning rank keeps the core from the one that it waits for.
      spin_(std::ssize(*segments) <= sysconf(_SC_NPROCESSORS_ONLN) ? Bell::kSpin : Bell::kSpin.zero()) {
  if (members_.empty())
    for (std::size_t each = 0; each < segments->size(); ++each) members_.emplace_back(each);
  SHUNT_CHECK(members_.size() == segments->size());
  self_ = place(rank);
  home_ = std::make_shared<Home>(std::move(segments), self_, control_bytes());
}

LocalTransport::~LocalTransport() {
  leave();
  // Its thread may be reporting, so it ends before anything that report() uses.
  stop_watching();
}

void LocalTransport::watch(std::vector<Descriptor> sockets, std::chrono::milliseconds liveness) {
  heartbeat_ = std::make_unique<Heartbeat>(*this, std::move(sockets), liveness);
}

void LocalTransport::stop_watching() { heartbeat_.reset(); }

std::size_t LocalTransport::place(RankId rank) const {
  const auto found = std::ranges::lower_bound(members_, rank);
  SHUNT_CHECK(found != members_.end() && *found == rank);
  return static_cast<std::size_t>(found - members_.begin());
}

Block LocalTransport::allocate(std::size_t bytes) {
  const std::uint64_t offset = home_->pool.allocate(bytes);
  std::byte* data = segment(self_).base() + offset;
  return {data, bytes,
          std::shared_ptr<const void>(data, [home = home_, offset](const void*) { home->pool.release(offset); })};
}

std::optional<std::uint64_t> LocalTransport::offset_of(const std::byte* data, std::size_t bytes) const {
  const Segment& own = segment(self_);
  const std::byte* pool = own.base() + control_bytes();
  if (data < pool || data >= own.base() + own.bytes()) return std::nullopt;
  const auto offset = static_cast<std::uint64_t>(data - own.base());
  if (bytes > own.bytes() - offset) return std::nullopt;
  return offset;
}

std::byte* LocalTransport::peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const {
  const Segment& theirs = segment(place(peer));
  if (offset < control_bytes() || offset > theirs.bytes() || bytes > theirs.bytes() - offset)
    fail_because_of(peer, "rank {}: rank {} announced {} bytes at offset {}, outside its pool", rank_, peer, bytes,
                    offset);
  return theirs.base() + offset;
}

Post LocalTransport::post(RankId peer, std::span<const std::byte> message) {
  Control& theirs = control(place(peer));
  const Post result = theirs.mailboxes()[self_].post(message);
  if (result == Post::posted) theirs.bell.ring();
  return result;
}

bool LocalTransport::poll(Message& message) {
  Mailbox* mailboxes = control(self_).mailboxes();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t sender = next_mailbox_;
    message.from = members_[sender];
    next_mailbox_ = (next_mailbox_ + 1) % members_.size();
    switch (mailboxes[sender].poll(message)) {
      case Mailbox::Poll::empty: break;
      case Mailbox::Poll::message: return true;
      case Mailbox::Poll::message_made_room: control(sender).bell.ring(); return true;
      case Mailbox::Poll::damaged:
        report(ErrorCode::mismatch, message.from,
               fmt::format("rank {}: the mailbox of rank {} is damaged", rank_, message.from));
        return false;
    }
  }
  return false;
}

void LocalTransport::report(ErrorCode code, RankId culprit, const std::string& text) {
  const std::lock_guard lock(report_mutex_);
  std::atomic<FaultWord>& cell = control(0).world_fault;
  if (cell.load(std::memory_order_acquire).is_set != 0) return;
  auto& own_text = control(self_).fault_text;
  const std::size_t length = std::min(text.size(), own_text.size() - 1);
  std::memcpy(own_text.data(), text.data(), length);
  own_text[length] = '\0';
  FaultWord none;
  const FaultWord mine{culprit.value, static_cast<std::uint16_t>(self_), static_cast<std::uint8_t>(code), 1};
  // Release: partner of the acquire in fault(); covers the text.
  const bool is_first = cell.compare_exchange_strong(none, mine, std::memory_order_acq_rel);
  ring_all();
  if (is_first && fault_listener_) fault_listener_({code, culprit, rank_, text});
}

void LocalTransport::set_fault_listener(std::function<void(const Fault&)> listener) {
  const std::lock_guard lock(report_mutex_);
  fault_listener_ = std::move(listener);
  if (const auto known = fault(); known && fault_listener_) fault_listener_(*known);
}

std::optional<Fault> LocalTransport::fault() const {
  const FaultWord word = control(0).world_fault.load(std::memory_order_acquire);
  if (word.is_set == 0) return std::nullopt;
  if (word.reporter >= members_.size() || word.culprit < 0 || word.culprit >= size())
    return Fault{ErrorCode::internal, rank_, rank_, "the world's fault record is damaged"};
  const auto& text = control(word.reporter).fault_text;
  return Fault{static_cast<ErrorCode>(word.code), RankId(word.culprit), members_[word.reporter],
               std::string(text.data(), strnlen(text.data(), text.size()))};
}

void LocalTransport::suspect(RankId peer) {
  if (heartbeat_) heartbeat_->suspect(place(peer));
}

bool LocalTransport::has_left(RankId peer) const {
  // Acquire: partner of the release in leave(); all that the peer sent can be polled after this.
  return control(place(peer)).left.load(std::memory_order_acquire) != 0;
}

bool LocalTransport::is_gone(RankId peer) const {
  return has_left(peer) || (heartbeat_ && heartbeat_->is_gone(place(peer)));
}

void LocalTransport::leave() {
  if (control(self_).left.exchange(1, std::memory_order_release) == 0) ring_all();
}

void LocalTransport::ring_all() const {
  for (std::size_t each = 0; each < members_.size(); ++each) control(each).bell.ring();
}

}  // namespace shunt
