#include "transport/ucx/link.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <type_traits>

#include "core/fail.hpp"

namespace shunt::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kActiveMessage = 0;
// Buffers of this rank on their way at a time.
constexpr std::int32_t kMostOpen = 64;
// Messages to one rank that it has not polled before post() says `again`, and how many it polls before it says so.
constexpr std::int32_t kMostUnread = 256;
constexpr std::int32_t kReadAtATime = kMostUnread / 4;
constexpr std::align_val_t kAlignment{64};
// How long the last messages may take to leave, and connections to close.
constexpr std::chrono::milliseconds kFarewell{2000};
constexpr std::size_t kMostFaultText = 1000;

}  // namespace

/// Travels with every message. Nothing in it is believed before the session is.
struct Link::Header {
  std::uint64_t session;
  std::uint64_t engine;
  std::uint32_t sequence;
  std::uint32_t index;
  std::int32_t from;
  Kind kind;
  std::uint8_t is_last;
  std::uint16_t unused;
};

/// A message on its way; UCX reads it until on_sent().
struct Link::Sending {
  Link* link;
  Header header;
  std::vector<std::byte> small;
  OutSlice slice;
  std::size_t slice_bytes = 0;
};

/// A slice that is being fetched.
struct Link::Receiving {
  Link* link;
  InSlice slice;
};

struct Link::Peer {
  Link* link;
  RankId rank;
  std::uint64_t session_there = 0;
  std::uint64_t session_here = 0;
  ucp_ep_h endpoint = nullptr;
  bool is_broken = false;
  std::atomic<bool> has_asked{false};     // it has reached this rank
  std::atomic<bool> has_answered{false};  // this rank has reached it
  std::atomic<bool> has_left{false};      // it says so, but slices that it sent before may still be on their way
  std::atomic<std::uint64_t> num_slices_to{0};
  std::atomic<std::uint64_t> num_slices_from{0};
  std::atomic<std::uint64_t> num_slices_until_left{0};
  std::atomic<std::int32_t> num_unread{0};  // messages to it
  std::int32_t num_polled = 0;              // messages from it, since it was last told
  std::deque<Message> messages;             // from it; guarded by the link's mutex
  std::mutex mutex;                         // guards silence
  Silence silence;
};

/// Arrival buffers of UCX that are free again, and the bell that wakes the link's thread. Outlives the link as long as
/// a slice does.
class Link::Releases {
 public:
  Releases() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_.valid()) fail_errno("can't make an event descriptor");
  }

  [[nodiscard]] int wake_fd() const { return wake_.get(); }
  void wake() {
    const std::uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }
  void forget_wakes() {
    std::uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof(count));
  }

  void add(void* data) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(data);
    }
    wake();
  }
  std::vector<void*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(free_, {});
  }

 private:
  Descriptor wake_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

Link::Link(std::unique_ptr<Worker> worker, LinkOptions options, Listener listener)
    : worker_(std::move(worker)),
      options_(std::move(options)),
      listener_(std::move(listener)),
      peers_(static_cast<std::size_t>(options_.size)),
      releases_(std::make_shared<Releases>()),
      num_open_(std::make_shared<std::atomic<std::int32_t>>(0)) {
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
  } catch (...) {
    close_all();
    throw;
  }
  thread_ = std::thread([this] { run(); });
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
  check(ucp_ep_create(worker_->get(), &params, &peer.endpoint), "connect");
}

void Link::greet_all(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (const auto& peer : peers_)
    if (peer) queue(peer->rank, make_sending(peer->rank, Kind::ping, {}));
  for (const auto& peer : peers_) {
    while (peer && !(peer->has_asked && peer->has_answered)) {
      if (Clock::now() >= deadline)
        fail(ErrorCode::deadline, "rank {} has met rank {}, but can't {} over the network", options_.rank, peer->rank,
             peer->has_answered ? "be reached by it" : "reach it");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  worker_->refuse_strangers();
}

// What other threads call.

std::unique_ptr<Link::Sending> Link::make_sending(RankId peer, Kind kind, std::span<const std::byte> bytes) const {
  auto sending = std::make_unique<Sending>();
  sending->link = const_cast<Link*>(this);
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
      listener_.on_fault(ErrorCode::peer_lost, peer,
                         fmt::format("rank {} has not answered rank {} for {} ms (stopped, or cut off?)", peer,
                                     options_.rank, state.silence.length().count()));
  }
}

bool Link::has_left(RankId peer) const {
  const Peer& state = *peers_[peer.index()];
  return state.has_left && state.num_slices_from >= state.num_slices_until_left;
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

std::optional<OutSlice> Link::open(std::size_t bytes) {
  if (*num_open_ >= kMostOpen) return std::nullopt;
  ++*num_open_;
  auto* const data = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  return OutSlice{{data, bytes}, std::shared_ptr<void>(data, [num_open = num_open_](void* buffer) {
                    ::operator delete(buffer, kAlignment);
                    --*num_open;
                  })};
}

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

// The link's thread.

void Link::run() {
  try {
    while (!is_stopping_) {
      for (void* data : releases_->take()) ucp_am_data_release(worker_->get(), data);
      bool moved = send_queued();
      while (ucp_worker_progress(worker_->get()) != 0) moved = true;
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
  const void* data = is_slice ? static_cast<const void*>(sending->slice.bytes.data()) : sending->small.data();
  const std::size_t bytes = is_slice ? sending->slice_bytes : sending->small.size();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = sending.get();
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(peer.endpoint, kActiveMessage, &sending->header, sizeof(Header), data, bytes, &param);
  if (UCS_PTR_IS_ERR(request)) return lose(rank, UCS_PTR_STATUS(request));
  if (!request) {
    sending.reset();
    if (is_slice) listener_.on_arrival();
    return;
  }
  ++num_sending_;
  (void)sending.release();
}

void Link::on_sent(void* request, ucs_status_t, void* data) {
  const std::unique_ptr<Sending> sending(static_cast<Sending*>(data));
  --sending->link->num_sending_;
  ucp_request_free(request);
  const bool was_slice = sending->header.kind == Kind::slice;
  sending->slice = {};
  if (was_slice) sending->link->listener_.on_arrival();
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
  if (!peer || header.session != peer->session_here) return UCS_OK;
  {
    const std::lock_guard lock(peer->mutex);
    peer->silence.end();
  }
  if (header.kind == Kind::slice) return receive_slice(header, data, bytes, param);
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0)
    receive_small(header, {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

void Link::receive_small(const Header& header, std::span<const std::byte> bytes) {
  const RankId from(header.from);
  switch (header.kind) {
    case Kind::message: {
      Message message;
      if (bytes.size() > message.data.size()) return;
      message.from = from;
      message.bytes = bytes.size();
      std::copy(bytes.begin(), bytes.end(), message.data.begin());
      {
        const std::lock_guard lock(mutex_);
        auto& messages = peers_[from.index()]->messages;
        if (messages.empty()) heard_.push_back(from);
        messages.push_back(message);
      }
      return listener_.on_arrival();
    }
    case Kind::read: peers_[from.index()]->num_unread -= kReadAtATime; return listener_.on_arrival();
    case Kind::ping: peers_[from.index()]->has_asked = true; return send(from, make_sending(from, Kind::alive, {}));
    case Kind::left: {
      std::uint64_t num_slices = 0;
      if (bytes.size() != sizeof(num_slices)) return;
      std::memcpy(&num_slices, bytes.data(), sizeof(num_slices));
      peers_[from.index()]->num_slices_until_left = num_slices;
      peers_[from.index()]->has_left = true;
      return listener_.on_arrival();
    }
    case Kind::fault: {
      std::array<std::int32_t, 2> words{};
      if (bytes.size() < sizeof(words)) return;
      std::memcpy(words.data(), bytes.data(), sizeof(words));
      const auto text = bytes.subspan(sizeof(words));
      is_poisoned_ = true;
      if (words[1] < 0 || words[1] >= options_.size || words[0] < 0 ||
          words[0] > static_cast<std::int32_t>(ErrorCode::internal))
        return;
      return listener_.on_fault(static_cast<ErrorCode>(words[0]), RankId(words[1]),
                                std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    }
    case Kind::alive: peers_[from.index()]->has_answered = true; return;
    case Kind::slice: return;
  }
}

ucs_status_t Link::receive_slice(const Header& header, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t& param) {
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
  listener_.on_arrival();
}

void Link::on_error(void* data, ucp_ep_h, ucs_status_t status) {
  auto* const peer = static_cast<Peer*>(data);
  peer->link->lose(peer->rank, status);
}

void Link::lose(RankId rank, ucs_status_t status) {
  Peer& peer = *peers_[rank.index()];
  if (std::exchange(peer.is_broken, true) || peer.has_left || has_left_) return;
  listener_.on_fault(
      ErrorCode::peer_lost, rank,
      fmt::format("rank {} lost its connection to rank {}: {}", options_.rank, rank, ucs_status_string(status)));
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
}

void Link::close_all() {
  std::vector<ucs_status_ptr_t> closing;
  for (const auto& peer : peers_) {
    if (!peer || !peer->endpoint) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    peer->is_broken = true;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(peer->endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
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
