// What any thread may ask of a link; link_thread.cpp is what its own thread does.
#include "transport/ucx/link.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "core/fail.hpp"
#include "transport/ucx/link_parts.hpp"

namespace shunt::ucx {
namespace {

using Clock = std::chrono::steady_clock;

// Buffers of this rank on their way at a time.
constexpr std::int32_t kMostOpen = 64;
constexpr std::size_t kMostFaultText = 1000;

}  // namespace

Link::Link(std::unique_ptr<Worker> worker, LinkOptions options, Listener listener)
    : worker_(std::move(worker)),
      options_(std::move(options)),
      listener_(std::move(listener)),
      peers_(static_cast<std::size_t>(options_.size)),
      releases_(std::make_shared<Releases>()),
      buffers_(kMostOpen, listener_.on_arrival) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kActiveMessage;
  handler.cb = on_active_message;
  handler.arg = this;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  check(ucp_worker_set_am_recv_handler(worker_->get(), &handler), "take active messages");
  try {
    for (const Contact& contact : options_.contacts) {
      auto& peer = peers_[contact.rank.index()];
      peer = std::make_unique<Peer>();
      connect(*peer, contact);
    }
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    close_all();
    fail(ErrorCode::system, "rank {} can't start the thread of its network: {}", options_.rank, error.what());
  } catch (...) {
    close_all();
    throw;
  }
}

Link::~Link() {
  leave();
  is_stopping_ = true;
  releases_->wake();
  thread_.join();
}

void Link::connect(Peer& peer, const Contact& contact) {
  peer.link = this;
  peer.rank = contact.rank;
  peer.session_there = contact.session_there;
  peer.session_here = contact.session_here;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(contact.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, &peer};
  for (ucp_ep_h* endpoint : {&peer.for_messages, &peer.for_slices})
    check(ucp_ep_create(worker_->get(), &params, endpoint), "connect");
}

void Link::greet_all(std::chrono::milliseconds limit, const std::function<std::optional<Fault>()>& fault) {
  const auto deadline = Clock::now() + limit;
  std::vector<const Peer*> silent;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    // Whoever hears the ping knows that both connections stand.
    auto hello = make_sending(peer->rank, Kind::hello, {});
    hello->next = make_sending(peer->rank, Kind::ping, {});
    queue(peer->rank, std::move(hello));
    silent.push_back(peer.get());
  }
  for (;;) {
    std::erase_if(silent, [](const Peer* peer) { return peer->has_asked && peer->has_answered; });
    if (silent.empty()) break;
    if (const auto known = fault()) throw Error(known->code, known->text);
    const auto gone = std::ranges::find_if(silent, [](const Peer* peer) { return peer->has_left || peer->is_broken; });
    if (gone != silent.end())
      fail(ErrorCode::peer_lost, "rank {} left while rank {} was greeting it", (*gone)->rank, options_.rank);
    if (Clock::now() >= deadline)
      fail(ErrorCode::deadline, "rank {} has met rank {}, but can't {} over the network", options_.rank,
           silent.front()->rank, silent.front()->has_answered ? "be reached by it" : "reach it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  worker_->refuse_strangers();
}

std::unique_ptr<Link::Sending> Link::make_sending(RankId peer, Kind kind, std::span<const std::byte> bytes) const {
  auto sending = std::make_unique<Sending>();
  sending->link = const_cast<Link*>(this);
  sending->to = peer;
  sending->header = {.session = peers_[peer.index()]->session_there,
                     .engine = 0,
                     .sequence = 0,
                     .index = 0,
                     .from = options_.rank.value,
                     .kind = kind,
                     .is_last = 0,
                     .unused = 0};
  sending->small.assign(bytes.begin(), bytes.end());
  return sending;
}

void Link::queue(RankId peer, std::unique_ptr<Sending> sending) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    was_empty = outgoing_.empty();
    outgoing_.emplace_back(peer, std::move(sending));
  }
  if (was_empty) releases_->wake();
}

Post Link::post(RankId peer, std::span<const std::byte> message) {
  std::atomic<std::int32_t>& num_unread = peers_[peer.index()]->num_unread;
  if (num_unread >= kMostUnread) return Post::again;
  ++num_unread;
  queue(peer, make_sending(peer, Kind::message, message));
  return Post::posted;
}

bool Link::poll(Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (heard_.empty()) return false;
    auto& messages = peers_[heard_.front().index()]->messages;
    message = messages.front();
    messages.pop_front();
    // One message each, so that a busy peer can't silence the others.
    if (!messages.empty()) heard_.push_back(heard_.front());
    heard_.pop_front();
  }
  if (std::int32_t& num_polled = peers_[message.from.index()]->num_polled; ++num_polled == kReadAtATime) {
    num_polled = 0;
    queue(message.from, make_sending(message.from, Kind::read, {}));
  }
  return true;
}

void Link::suspect(RankId peer) {
  Peer& state = *peers_[peer.index()];
  const std::lock_guard lock(state.mutex);
  switch (state.silence.suspect(options_.liveness)) {
    case Silence::Next::ask: queue(peer, make_sending(peer, Kind::ping, {})); break;
    case Silence::Next::wait: break;
    case Silence::Next::lost:
      state.is_silent = true;
      listener_.on_fault(ErrorCode::peer_lost, peer,
                         fmt::format("rank {} has not answered rank {} for {} ms (stopped, or cut off?)", peer,
                                     options_.rank, state.silence.length().count()));
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
    if (peer) queue(peer->rank, make_sending(peer->rank, Kind::fault, bytes));
}

void Link::leave() {
  if (has_left_.exchange(true)) return;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    const std::uint64_t num_slices = peer->num_slices_to;
    queue(peer->rank, make_sending(peer->rank, Kind::left, std::as_bytes(std::span(&num_slices, 1))));
  }
}

std::optional<OutSlice> Link::open(std::size_t bytes) { return buffers_.open(bytes); }

void Link::post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) {
  auto sending = make_sending(peer, Kind::slice, {});
  sending->header.engine = tag.engine;
  sending->header.sequence = tag.sequence;
  sending->header.index = tag.index;
  sending->header.is_last = tag.is_last;
  sending->slice = std::move(slice);
  sending->slice_bytes = bytes;
  ++peers_[peer.index()]->num_slices_to;
  queue(peer, std::move(sending));
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

}  // namespace shunt::ucx
