// What a link's own thread does: it alone calls UCX once the link is made.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/fail.hpp"
#include "transport/ucx/link.hpp"
#include "transport/ucx/link_parts.hpp"

namespace shunt::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProgressAtATime = 64;
// How long the last messages may take to leave, and connections to close.
constexpr std::chrono::milliseconds kFarewell{2000};

}  // namespace

void Link::run() {
  try {
    while (!is_stopping_) {
      for (void* data : releases_->take()) ucp_am_data_release(worker_->get(), data);
      bool moved = send_queued();
      // Bounded, so that peers who never pause can't keep this rank from sending or from leaving.
      for (int i = 0; i < kProgressAtATime && ucp_worker_progress(worker_->get()) != 0; ++i) moved = true;
      if (!moved) sleep();
    }
    say_farewell();
  } catch (const std::exception& error) {
    listener_.on_fault(ErrorCode::system, options_.rank, fmt::format("rank {}: {}", options_.rank, error.what()));
  }
  close_all();
}

void Link::sleep() {
  if (!worker_->arm()) return;
  std::array<pollfd, 2> entries = {{{worker_->event_fd(), POLLIN, 0}, {releases_->wake_fd(), POLLIN, 0}}};
  ::poll(entries.data(), entries.size(), -1);
  if (entries[1].revents != 0) releases_->forget_wakes();
}

bool Link::send_queued() {
  std::deque<std::pair<RankId, std::unique_ptr<Sending>>> queued;
  {
    const std::lock_guard lock(mutex_);
    queued.swap(outgoing_);
  }
  for (auto& [peer, sending] : queued) send(peer, std::move(sending));
  return !queued.empty();
}

void Link::send(RankId rank, std::unique_ptr<Sending> sending) {
  Peer& peer = *peers_[rank.index()];
  if (peer.is_broken) return;
  const bool is_slice = sending->header.kind == Kind::slice;
  const ucp_ep_h endpoint = is_slice || sending->header.kind == Kind::hello ? peer.for_slices : peer.for_messages;
  const void* data = is_slice ? static_cast<const void*>(sending->slice.bytes.data()) : sending->small.data();
  const std::size_t bytes = is_slice ? sending->slice_bytes : sending->small.size();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = sending.get();
  if (is_slice && worker_->is_tcp_only()) {
    // A rendezvous costs two messages that wait behind slices.
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
  }
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kActiveMessage, &sending->header, sizeof(Header), data, bytes, &param);
  if (UCS_PTR_IS_ERR(request)) return lose(rank, UCS_PTR_STATUS(request));
  if (!request) return note_sent(*sending);
  ++num_sending_;
  (void)sending.release();
}

void Link::on_sent(void* request, ucs_status_t, void* data) {
  const std::unique_ptr<Sending> sending(static_cast<Sending*>(data));
  --sending->link->num_sending_;
  sending->link->note_sent(*sending);
  ucp_request_free(request);
}

void Link::note_sent(Sending& sending) {
  if (sending.header.kind == Kind::alive) peers_[sending.to.index()]->is_answering = false;
  if (sending.next) send(sending.to, std::move(sending.next));
}

ucs_status_t Link::on_active_message(void* self, const void* data_header, std::size_t header_bytes, void* data,
                                     std::size_t bytes, const ucp_am_recv_param_t* param) {
  static_assert(std::is_trivially_copyable_v<Header>);
  Header header{};
  if (header_bytes != sizeof(header)) return UCS_OK;
  std::memcpy(&header, data_header, sizeof(header));
  auto* const link = static_cast<Link*>(self);
  // Nothing may be thrown through UCX.
  try {
    return link->receive(header, data, bytes, *param);
  } catch (const std::exception& error) {
    link->listener_.on_fault(ErrorCode::system, link->options_.rank,
                             fmt::format("rank {} can't take a message of {} bytes from rank {}: {}",
                                         link->options_.rank, bytes, header.from, error.what()));
    return UCS_OK;
  }
}

ucs_status_t Link::receive(const Header& header, void* data, std::size_t bytes, const ucp_am_recv_param_t& param) {
  if (header.from < 0 || header.from >= options_.size) return UCS_OK;
  Peer* const peer = peers_[static_cast<std::size_t>(header.from)].get();
  if (!peer || header.session != peer->session_here || peer->is_accused) return UCS_OK;
  peer->is_known = true;
  {
    const std::lock_guard lock(peer->mutex);
    peer->silence.end();
  }
  if (header.kind == Kind::slice) return receive_slice(header, data, bytes, param);
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0)
    receive_small(*peer, header.kind, {static_cast<const std::byte*>(data), bytes});
  else
    accuse(*peer, fmt::format("{} bytes that are no slice", bytes));
  return UCS_OK;
}

void Link::receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case Kind::message: return receive_message(peer, bytes);
    case Kind::read:
      if (peer.num_unread < kReadAtATime) return accuse(peer, "word that it has read more messages than there were");
      peer.num_unread -= kReadAtATime;
      return listener_.on_arrival();
    case Kind::ping: peer.has_asked = true; return answer(peer);
    case Kind::left: {
      std::uint64_t num_slices = 0;
      if (peer.has_left) return accuse(peer, "a second farewell");
      if (bytes.size() != sizeof(num_slices)) return accuse(peer, fmt::format("a farewell of {} bytes", bytes.size()));
      std::memcpy(&num_slices, bytes.data(), sizeof(num_slices));
      peer.num_slices_until_left = num_slices;
      peer.has_left = true;
      part(peer);
      return listener_.on_arrival();
    }
    case Kind::fault: return receive_fault(peer, bytes);
    case Kind::alive: peer.has_answered = true; return;
    case Kind::parted: peer.has_parted = true; return;
    case Kind::hello: return;
    case Kind::slice: break;  // never small
  }
  accuse(peer, fmt::format("a message of an unknown kind, {}", static_cast<int>(kind)));
}

/// Slices take another way than the farewell.
void Link::part(Peer& peer) {
  if (!peer.has_left || (!is_poisoned_ && peer.num_slices_from < peer.num_slices_until_left)) return;
  if (!std::exchange(peer.is_let_go, true)) send(peer.rank, make_sending(peer.rank, Kind::parted, {}));
}

void Link::receive_message(Peer& peer, std::span<const std::byte> bytes) {
  Message message;
  if (bytes.size() > message.data.size()) return accuse(peer, fmt::format("a message of {} bytes", bytes.size()));
  message.from = peer.rank;
  message.bytes = bytes.size();
  std::copy(bytes.begin(), bytes.end(), message.data.begin());
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    has_room = peer.messages.size() < static_cast<std::size_t>(kMostUnread);
    if (has_room && peer.messages.empty()) heard_.push_back(peer.rank);
    if (has_room) peer.messages.push_back(message);
  }
  if (!has_room) return accuse(peer, fmt::format("more than {} messages that were not read", kMostUnread));
  listener_.on_arrival();
}

void Link::receive_fault(Peer& peer, std::span<const std::byte> bytes) {
  std::array<std::int32_t, 2> words{-1, -1};
  if (bytes.size() >= sizeof(words)) std::memcpy(words.data(), bytes.data(), sizeof(words));
  const auto [code, culprit] = words;
  if (culprit < 0 || culprit >= options_.size || code < 0 || code > static_cast<std::int32_t>(ErrorCode::internal))
    return accuse(peer, fmt::format("a fault that makes no sense ({} bytes)", bytes.size()));
  const auto text = bytes.subspan(sizeof(words));
  is_poisoned_ = true;
  listener_.on_fault(static_cast<ErrorCode>(code), RankId(culprit),
                     std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

// One answer at a time serves all questions, however many a peer asks that does not listen.
void Link::answer(Peer& peer) {
  if (std::exchange(peer.is_answering, true)) return;
  send(peer.rank, make_sending(peer.rank, Kind::alive, {}));
}

void Link::accuse(Peer& peer, const std::string& sent) {
  if (std::exchange(peer.is_accused, true)) return;
  listener_.on_fault(ErrorCode::mismatch, peer.rank,
                     fmt::format("rank {} sent rank {} {}", peer.rank, options_.rank, sent));
}

ucs_status_t Link::receive_slice(const Header& header, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t& param) {
  Peer& peer = *peers_[static_cast<std::size_t>(header.from)];
  if (bytes > peer.most_slice_bytes || peer.num_expected-- <= 0) {
    accuse(peer, fmt::format("slice #{} of {} bytes, for which it was granted no room", header.index, bytes));
    return UCS_OK;
  }
  InSlice slice{RankId(header.from), {header.engine, header.sequence, header.index, header.is_last != 0}, {}, nullptr};
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    slice.bytes = {static_cast<const std::byte*>(data), bytes};
    slice.owner = std::shared_ptr<const void>(
        data, [releases = releases_](const void* buffer) { releases->add(const_cast<void*>(buffer)); });
    arrive(std::move(slice));
    return UCS_INPROGRESS;
  }
  const auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  slice.bytes = *buffer;
  slice.owner = buffer;
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    if (bytes > 0) std::memcpy(buffer->data(), data, bytes);
    arrive(std::move(slice));
    return UCS_OK;
  }
  auto receiving = std::make_unique<Receiving>(Receiving{this, std::move(slice)});
  ucp_request_param_t request_param{};
  request_param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  request_param.cb.recv_am = on_received;
  request_param.user_data = receiving.get();
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->get(), data, buffer->data(), buffer->size(), &request_param);
  if (UCS_PTR_IS_ERR(request)) {
    lose(RankId(header.from), UCS_PTR_STATUS(request));
  } else if (!request) {
    arrive(std::move(receiving->slice));
  } else {
    (void)receiving.release();
  }
  return UCS_INPROGRESS;
}

void Link::on_received(void* request, ucs_status_t status, std::size_t, void* data) {
  const std::unique_ptr<Receiving> receiving(static_cast<Receiving*>(data));
  ucp_request_free(request);
  // A transfer that failed comes with an error of its connection.
  if (status == UCS_OK) receiving->link->arrive(std::move(receiving->slice));
}

void Link::arrive(InSlice slice) {
  Peer& peer = *peers_[slice.from.index()];
  {
    const std::lock_guard lock(mutex_);
    slices_.push_back(std::move(slice));
  }
  // After the slice can be polled: whoever sees the peer gone finds all that it sent.
  ++peer.num_slices_from;
  part(peer);
  listener_.on_arrival();
}

void Link::on_error(void* data, ucp_ep_h, ucs_status_t status) {
  auto* const peer = static_cast<Peer*>(data);
  peer->link->lose(peer->rank, status);
}

void Link::lose(RankId rank, ucs_status_t status) {
  Peer& peer = *peers_[rank.index()];
  if (!peer.is_broken && !peer.has_left && !has_left_)
    listener_.on_fault(
        ErrorCode::peer_lost, rank,
        fmt::format("rank {} lost its connection to rank {}: {}", options_.rank, rank, ucs_status_string(status)));
  // After the fault: whoever sees it broken finds out why.
  peer.is_broken = true;
}

// Takes as long as something moves: a slow network is no reason to leave peers without what they wait for.
void Link::say_farewell() {
  const auto patience = is_poisoned_ ? kFarewell : std::max(kFarewell, options_.liveness);
  auto deadline = Clock::now() + patience;
  while (send_queued()) {
  }
  ucp_request_param_t param{};
  const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_->get(), &param);
  while (Clock::now() < deadline &&
         (num_sending_ > 0 || (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS))) {
    const std::int32_t num_before = num_sending_;
    if (ucp_worker_progress(worker_->get()) == 0) std::this_thread::yield();
    if (num_sending_ < num_before) deadline = Clock::now() + patience;
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
  await_partings();
}

// A connection that is closed while bytes are unread takes with it what was sent: then a peer would not hear of a fault
// from whoever found it, and name this rank instead.
void Link::await_partings() {
  const auto deadline = Clock::now() + kFarewell;
  const auto is_awaited = [](const std::unique_ptr<Peer>& peer) {
    return peer && peer->is_known && !peer->has_parted && !peer->has_left && !peer->is_broken;
  };
  while (std::ranges::any_of(peers_, is_awaited) && Clock::now() < deadline)
    if (ucp_worker_progress(worker_->get()) == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void Link::close_all() {
  std::vector<ucs_status_ptr_t> closing;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->is_broken = true;
    for (const ucp_ep_h endpoint : {peer->for_messages, peer->for_slices}) {
      if (!endpoint) continue;
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &param);
      if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    }
  }
  const auto deadline = Clock::now() + kFarewell;
  for (const ucs_status_ptr_t request : closing) {
    while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::now() < deadline)
      ucp_worker_progress(worker_->get());
    ucp_request_free(request);
  }
  // What was cancelled comes back through its callback.
  while (num_sending_ > 0 && Clock::now() < deadline) ucp_worker_progress(worker_->get());
  {
    const std::lock_guard lock(mutex_);
    slices_.clear();
  }
  for (void* data : releases_->take()) ucp_am_data_release(worker_->get(), data);
}

}  // namespace shunt::ucx
