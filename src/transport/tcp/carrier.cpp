#include "transport/tcp/carrier.hpp"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "transport/tcp/connection.hpp"

namespace shunt::tcp {
namespace {

constexpr std::size_t kMaxRails = 16;
// Accepted connections without a greeting; beyond that the oldest are closed.
constexpr std::size_t kMaxUnidentified = 256;
// Descriptors that the rest of the process may need; the ranks of a machine need three for each other one while they
// join.
constexpr rlim_t kOtherDescriptors = 1024;
constexpr std::size_t kEventsAtATime = 64;
// Packets from one connection in a row, so that a busy peer can't keep this rank from others, from sending or from
// leaving.
constexpr int kPacketsAtATime = 16;
// Packets that are read from a lost peer: more than the messages that it may have sent.
constexpr int kMaxLastPackets = 1024;

struct Peer;

/// One connection to a peer.
struct Channel {
  enum class State { awaited, connecting, greeting, open, ended };

  Peer* peer;
  std::int32_t index;  // 0 is for messages, the others are rails
  State state = State::awaited;
  bool is_blocked = false;                 // the system takes no more bytes yet
  std::optional<Connection> connection{};  // none while it is awaited

  [[nodiscard]] bool is_for_messages() const { return index == 0; }
  [[nodiscard]] bool was_opened() const { return state == State::open || state == State::ended; }
};

struct Peer {
  far::Contact contact{};
  std::vector<net::Endpoint> endpoints{};
  std::vector<Channel> channels{};
  std::size_t next_rail = 0;
  std::deque<std::unique_ptr<far::Packet>> messages{};
  std::deque<std::unique_ptr<far::Packet>> slices{};
  bool is_lost = false;
  std::string why_lost{};

  /// All channels are, or were, open.
  [[nodiscard]] bool is_connected() const { return !is_lost && std::ranges::all_of(channels, &Channel::was_opened); }
  /// The peer has closed every channel that was open, and this side is connecting no other.
  [[nodiscard]] bool has_hung_up() const {
    return std::ranges::all_of(channels, [](const Channel& each) {
      return each.state == Channel::State::ended || each.state == Channel::State::awaited;
    });
  }
};

/// Raises the limit on open descriptors, whose default is lower than what the system allows.
void make_room_for(std::size_t num_connections, RankId self) {
  rlimit limit{};
  const rlim_t needed = num_connections + kOtherDescriptors;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  if (limit.rlim_cur <= num_connections || setrlimit(RLIMIT_NOFILE, &limit) != 0)
    fail(ErrorCode::system, "rank {} needs {} connections to other ranks, but may open {} descriptors (ulimit -Hn)",
         self, num_connections, limit.rlim_max);
}

class Carrier final : public far::Carrier {
 public:
  explicit Carrier(const Environment::Network& options) : options_(options), events_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_.valid()) fail_errno("can't watch connections");
    for (const std::string& name : items_of(options_.devices))
      listeners_.push_back(net::open_listener(name, options_.port_range));
    if (listeners_.empty()) listeners_.push_back(net::open_listener("", options_.port_range));
    if (listeners_.size() > kMaxRails)
      fail(ErrorCode::invalid_argument, "SHUNT_NET_DEVICES='{}': expected at most {} interfaces", options_.devices,
           kMaxRails);
    for (const net::Listener& listener : listeners_) net::accept_many(listener);
  }
  ~Carrier() override { Carrier::close(); }

  [[nodiscard]] std::vector<std::byte> address() const override {
    net::Bytes bytes;
    for (const auto& [endpoint, socket] : listeners_) net::append(bytes, net::pack(endpoint.port, endpoint.address));
    return bytes;
  }

  void connect(RankId self, std::vector<far::Contact> contacts, far::Receiver& receiver,
               std::shared_ptr<Wake> wake) override {
    self_ = self;
    receiver_ = &receiver;
    wake_ = std::move(wake);
    watch(wake_->fd(), EPOLLIN, true);
    for (const net::Listener& listener : listeners_) watch(listener.socket.get(), EPOLLIN, true);
    for (far::Contact& contact : contacts) add_peer(std::move(contact));
    make_room_for(num_unopened_, self_);
    for (auto& [rank, peer] : peers_)
      for (Channel& channel : peer.channels)
        if (is_initiator(channel)) begin_to_connect(channel);
    if (num_unopened_ == 0) stop_listening();
  }

  /// Listening ends by itself, once all peers are connected.
  void stop_accepting() override {}

  void send(std::unique_ptr<far::Packet> packet) override {
    Peer& peer = peers_.at(packet->to);
    if (peer.is_lost) return;
    const bool is_slice = packet->header.kind == far::Kind::slice;
    (is_slice ? peer.slices : peer.messages).push_back(std::move(packet));
    if (!peer.is_connected()) return;
    if (!is_slice) return push(peer.channels.front());
    const std::size_t num_rails = peer.channels.size() - 1;
    for (std::size_t i = 0; i < num_rails && !peer.slices.empty() && !peer.is_lost; ++i)
      push(peer.channels[1 + peer.next_rail++ % num_rails]);
  }

  void drop(RankId rank) override {
    Peer& peer = peers_.at(rank);
    peer.is_lost = true;
    std::erase(lost_, &peer);
    hang_up(peer);
  }

  bool progress() override { return handle_events(0); }
  void sleep() override { handle_events(-1); }

  [[nodiscard]] std::int64_t num_unsent() override {
    std::size_t count = 0;
    for (const auto& [rank, peer] : peers_) {
      if (!peer.is_connected()) continue;
      count += peer.messages.size() + peer.slices.size();
      for (const Channel& channel : peer.channels) count += channel.connection->is_sending() ? 1 : 0;
    }
    return static_cast<std::int64_t>(count);
  }

  void close() override {
    stop_listening();
    for (const auto& [rank, peer] : peers_) drop(rank);
  }

 private:
  /// Each of two ranks begins at least one connection, so each finds out if the other has ended.
  [[nodiscard]] bool is_initiator(const Channel& channel) const {
    return channel.is_for_messages() ? channel.peer->contact.rank < self_ : self_ < channel.peer->contact.rank;
  }

  void add_peer(far::Contact contact) {
    Peer& peer = peers_[contact.rank];
    peer.endpoints = endpoints_of(contact);
    peer.contact = std::move(contact);
    const std::size_t num_rails = std::max(peer.endpoints.size(), listeners_.size());
    for (std::size_t i = 0; i <= num_rails; ++i)
      peer.channels.push_back({.peer = &peer, .index = static_cast<std::int32_t>(i)});
    num_unopened_ += peer.channels.size();
  }

  void begin_to_connect(Channel& channel) {
    const Peer& peer = *channel.peer;
    const auto rail = static_cast<std::size_t>(std::max(channel.index - 1, 0));
    const net::Endpoint& to = peer.endpoints[rail % peer.endpoints.size()];
    net::Connected connected = net::begin_to_connect(to, listeners_[rail % listeners_.size()].endpoint.address);
    if (!connected.socket.valid())
      fail(ErrorCode::system, "rank {} can't connect to rank {} at {}", self_, peer.contact.rank, connected.why_not);
    channel.connection.emplace(std::move(connected.socket));
    channel.state = Channel::State::connecting;
    channels_.emplace(channel.connection->fd(), &channel);
    watch(channel.connection->fd(), EPOLLOUT, true);
  }

  void send_greeting(Channel& channel) {
    Peer& peer = *channel.peer;
    const std::string why_not = net::why_not_connected(channel.connection->socket());
    if (!why_not.empty()) return lose(peer, "can't connect: " + why_not);
    if (!channel.connection->send_greeting({peer.contact.session_there, self_.value, channel.index}))
      return lose(peer, "it closed the connection");
    channel.state = Channel::State::greeting;
    watch(channel.connection->fd(), EPOLLIN, false);
  }

  void receive_greeting(Channel& channel) {
    Peer& peer = *channel.peer;
    const auto status = channel.connection->receive_greeting();
    if (status == IoStatus::blocked) return;
    if (status != IoStatus::done) return lose(peer, "it closed the connection");
    if (channel.connection->greeting() != Greeting{peer.contact.session_here, peer.contact.rank.value, channel.index})
      return lose(peer, "another process listens at its endpoint");
    open(channel);
  }

  void accept_from(const Descriptor& listener) {
    net::Accepted accepted = net::accept_from(listener);
    if (accepted.out_of_room && unidentified_.empty())
      fail(ErrorCode::system, "rank {} can't open another descriptor for the connections of other ranks", self_);
    if (accepted.out_of_room || unidentified_.size() == kMaxUnidentified) unidentified_.pop_front();
    if (!accepted.socket.valid()) return;
    unidentified_.emplace_back(std::move(accepted.socket));
    watch(unidentified_.back().fd(), EPOLLIN, true);
  }

  void identify(std::list<Connection>::iterator entry) {
    const auto status = entry->receive_greeting();
    if (status == IoStatus::blocked) return;
    Connection identified = std::move(*entry);
    unidentified_.erase(entry);
    if (status == IoStatus::done) admit(std::move(identified));
  }

  /// Closes the connection unless one of this session, peer and channel is awaited.
  void admit(Connection connection) {
    const Greeting& greeting = connection.greeting();
    const auto found = peers_.find(RankId(greeting.from));
    if (found == peers_.end() || found->second.is_lost) return;
    Peer& peer = found->second;
    if (greeting.session != peer.contact.session_here || greeting.channel < 0 ||
        static_cast<std::size_t>(greeting.channel) >= peer.channels.size())
      return;
    Channel& channel = peer.channels[static_cast<std::size_t>(greeting.channel)];
    if (is_initiator(channel) || channel.state != Channel::State::awaited) return;
    if (!connection.send_greeting({peer.contact.session_there, self_.value, channel.index}))
      return lose(peer, "it closed the connection");
    channel.connection = std::move(connection);
    channels_.emplace(channel.connection->fd(), &channel);
    open(channel);
  }

  void open(Channel& channel) {
    Peer& peer = *channel.peer;
    channel.state = Channel::State::open;
    if (!channel.is_for_messages() && options_.send_buffer_bytes > 0)
      (void)setsockopt(channel.connection->fd(), SOL_SOCKET, SO_SNDBUF, &options_.send_buffer_bytes,
                       sizeof(options_.send_buffer_bytes));
    if (const std::uint64_t rate = static_cast<std::uint64_t>(options_.link_bytes_per_s) / peers_.size();
        options_.link_bytes_per_s > 0)  // the kernel paces what the connection sends
      (void)setsockopt(channel.connection->fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
    if (peer.is_connected())
      for (Channel& each : peer.channels) push(each);
    if (--num_unopened_ == 0) stop_listening();
  }

  void stop_listening() {
    for (const Connection& each : unidentified_) unwatch(each.fd());
    unidentified_.clear();
    for (net::Listener& listener : listeners_) {
      unwatch(listener.socket.get());
      listener.socket = {};
    }
  }

  bool handle_events(int timeout_ms) {
    std::array<epoll_event, kEventsAtATime> ready;
    const int num_ready = epoll_wait(events_.get(), ready.data(), ready.size(), timeout_ms);
    if (num_ready < 0 && errno != EINTR) fail_errno("can't wait for the network");
    for (int i = 0; i < num_ready; ++i) {
      const epoll_event& event = ready[static_cast<std::size_t>(i)];
      handle(event.data.fd, event.events);
    }
    // A wake counts too: the caller must look again before it sleeps.
    return handle_losses() || num_ready > 0;
  }

  void handle(int fd, std::uint32_t events) {
    if (fd == wake_->fd()) return wake_->clear();
    // A connection that was closed meanwhile is in none of the three.
    if (const auto channel = channels_.find(fd); channel != channels_.end()) {
      if (!channel->second->peer->is_lost) advance(*channel->second, events);
    } else if (const auto entry = std::ranges::find(unidentified_, fd, &Connection::fd); entry != unidentified_.end()) {
      identify(entry);
    } else {
      for (const net::Listener& listener : listeners_)
        if (listener.socket.get() == fd) return accept_from(listener.socket);
    }
  }

  void advance(Channel& channel, std::uint32_t events) {
    switch (channel.state) {
      case Channel::State::awaited:
      case Channel::State::ended: return;
      case Channel::State::connecting: return send_greeting(channel);
      case Channel::State::greeting: return receive_greeting(channel);
      case Channel::State::open: break;
    }
    if ((events & EPOLLOUT) != 0 && channel.is_blocked) {
      channel.is_blocked = false;
      push(channel);
      if (!channel.is_blocked && !channel.peer->is_lost) watch(channel.connection->fd(), EPOLLIN, false);
    }
    // Also for errors, which reading reports.
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) pull(channel);
  }

  void push(Channel& channel) {
    Peer& peer = *channel.peer;
    Connection& connection = *channel.connection;
    if (channel.is_blocked || channel.state == Channel::State::ended) return;
    auto& queue = channel.is_for_messages() ? peer.messages : peer.slices;
    while (!peer.is_lost) {
      if (!connection.is_sending()) {
        if (queue.empty()) return;
        connection.begin(std::move(queue.front()));
        queue.pop_front();
      }
      switch (connection.push()) {
        case IoStatus::done: receiver_->on_sent(*connection.finish()); break;
        case IoStatus::blocked: channel.is_blocked = true; return watch(connection.fd(), EPOLLIN | EPOLLOUT, false);
        case IoStatus::ended:
        case IoStatus::lost: return lose(peer, connection.why_lost());
      }
    }
  }

  void pull(Channel& channel) {
    for (int i = 0; i < kPacketsAtATime && !channel.peer->is_lost; ++i) {
      const IoStatus status = channel.connection->pull(*receiver_);
      if (status == IoStatus::lost) lose(*channel.peer, channel.connection->why_lost());
      if (status == IoStatus::ended) end(channel);
      if (status != IoStatus::done) return;
    }
  }

  // The other channels may still hold packets that were sent before.
  void end(Channel& channel) {
    Peer& peer = *channel.peer;
    channel.state = Channel::State::ended;
    channels_.erase(channel.connection->fd());
    unwatch(channel.connection->fd());
    if (peer.has_hung_up()) lose(peer, "it closed the connection");
  }

  // Callers may be using its connections, so handle_losses() closes them later.
  void lose(Peer& peer, std::string why) {
    if (std::exchange(peer.is_lost, true)) return;
    peer.why_lost = std::move(why);
    lost_.push_back(&peer);
  }

  bool handle_losses() {
    const std::vector<Peer*> lost = std::exchange(lost_, {});
    for (Peer* const peer : lost) {
      receive_last_messages(*peer);
      hang_up(*peer);
      receiver_->on_lost(peer->contact.rank, peer->why_lost);
    }
    return !lost.empty();
  }

  // They may include the fault because of which the peer has left.
  void receive_last_messages(Peer& peer) {
    Channel& channel = peer.channels.front();
    if (channel.state != Channel::State::open) return;
    for (int i = 0; i < kMaxLastPackets && channel.connection->pull(*receiver_) == IoStatus::done;) ++i;
  }

  // Shuts connections down, as a child that this process has forked may hold the same sockets open.
  void hang_up(Peer& peer) {
    for (Channel& channel : peer.channels) {
      if (!channel.connection) continue;
      channels_.erase(channel.connection->fd());
      if (channel.state != Channel::State::ended) unwatch(channel.connection->fd());
      (void)shutdown(channel.connection->fd(), SHUT_RDWR);
      channel.connection.reset();
    }
    peer.messages.clear();
    peer.slices.clear();
  }

  void watch(int fd, std::uint32_t events, bool is_new) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(events_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
      fail_errno("can't watch a connection");
  }

  void unwatch(int fd) { (void)epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  Environment::Network options_;
  std::vector<net::Listener> listeners_;  // one per rail; without sockets once all peers are connected
  Descriptor events_;
  RankId self_;
  far::Receiver* receiver_ = nullptr;
  std::shared_ptr<Wake> wake_;
  std::map<RankId, Peer> peers_;
  std::unordered_map<int, Channel*> channels_;  // by descriptor
  std::list<Connection> unidentified_;          // accepted, without a greeting yet; the oldest first
  std::size_t num_unopened_ = 0;                // channels that were never open
  std::vector<Peer*> lost_;                     // whose loss is not handled yet
};

}  // namespace

std::vector<net::Endpoint> endpoints_of(const far::Contact& contact) {
  std::vector<net::Endpoint> endpoints;
  net::ByteReader reader(contact.address);
  while (!reader.at_end() && reader.ok() && endpoints.size() <= kMaxRails) {
    net::Endpoint& endpoint = endpoints.emplace_back();
    reader.read(endpoint.port);
    reader.read(endpoint.address);
    if (endpoint.address.empty()) endpoint.address = contact.known_as;
  }
  if (!reader.ok() || endpoints.empty() || endpoints.size() > kMaxRails)
    fail(ErrorCode::mismatch, "rank {} published no valid endpoint, or more than {} endpoints", contact.rank,
         kMaxRails);
  return endpoints;
}

std::unique_ptr<far::Carrier> make_carrier(const Environment::Network& options) {
  return std::make_unique<Carrier>(options);
}

}  // namespace shunt::tcp
