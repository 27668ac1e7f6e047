// How connections come to stand: one side connects, both say who they are.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/tcp/carrier_parts.hpp"

namespace shunt::tcp {
namespace {

// Of connections that have not said who they are; then the oldest give way.
constexpr std::size_t kMostGuests = 256;
constexpr std::size_t kMostRails = 16;
// Descriptors that the rest of the process may need, among it the meeting with the ranks of the host: three for each.
constexpr rlim_t kOtherDescriptors = 1024;

/// The system allows more descriptors than it grants at first.
void make_room_for(std::size_t num_connections, RankId self) {
  rlimit limit{};
  const rlim_t needed = num_connections + kOtherDescriptors;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  if (limit.rlim_cur <= num_connections || setrlimit(RLIMIT_NOFILE, &limit) != 0)
    fail(ErrorCode::system, "rank {} needs {} connections to other ranks, but may open {} descriptors (ulimit -Hn)",
         self, num_connections, limit.rlim_max);
}

}  // namespace

Carrier::Carrier(const Options& options) : options_(options), events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!events_.valid()) fail_errno("can't watch connections");
  for (const std::string& name : items_of(options_.interfaces))
    listeners_.push_back(net::open_listener(name, options_.port_range));
  if (listeners_.empty()) listeners_.push_back(net::open_listener("", options_.port_range));
  if (listeners_.size() > kMostRails)
    fail(ErrorCode::invalid_argument, "SHUNT_NET_DEVICES='{}': expected at most {} interfaces", options_.interfaces,
         kMostRails);
  for (const net::Listener& listener : listeners_) {
    net::accept_many(listener);
    endpoints_.push_back(listener.endpoint);
  }
}

std::vector<std::byte> Carrier::address() const {
  net::Bytes bytes;
  for (const net::Endpoint& endpoint : endpoints_) net::append(bytes, endpoint);
  return bytes;
}

std::vector<net::Endpoint> endpoints_of(const far::Contact& contact) {
  std::vector<net::Endpoint> endpoints;
  net::ByteReader reader(contact.address);
  while (!reader.at_end() && reader.ok() && endpoints.size() <= kMostRails) {
    endpoints.push_back(net::take_endpoint(reader));
    if (endpoints.back().address.empty()) endpoints.back().address = contact.known_as;
  }
  if (!reader.ok() || endpoints.empty() || endpoints.size() > kMostRails)
    fail(ErrorCode::mismatch, "rank {} does not say where it can be reached, or at more than {} endpoints",
         contact.rank, kMostRails);
  return endpoints;
}

void Carrier::connect(RankId self, std::vector<far::Contact> contacts, far::Receiver& receiver,
                      std::shared_ptr<far::Wake> wake) {
  self_ = self;
  receiver_ = &receiver;
  wake_ = std::move(wake);
  watch(wake_->fd(), EPOLLIN, true);
  for (const net::Listener& listener : listeners_) watch(listener.socket.get(), EPOLLIN, true);
  for (far::Contact& contact : contacts) add_peer(std::move(contact));
  make_room_for(num_closed_, self_);
  for (const auto& [rank, peer] : peers_)
    for (Channel& channel : peer->channels)
      if (is_initiator(channel)) begin_to_connect(channel);
  if (num_closed_ == 0) close_doors();
}

/// Each of two ranks begins one at least, so each finds out if the other is not there any more.
bool Carrier::is_initiator(const Channel& channel) const {
  return channel.is_for_messages() ? channel.peer->contact.rank < self_ : self_ < channel.peer->contact.rank;
}

void Carrier::add_peer(far::Contact contact) {
  auto& peer = peers_[contact.rank];
  auto endpoints = endpoints_of(contact);
  const std::size_t num_rails = std::max(endpoints.size(), endpoints_.size());
  peer = std::make_unique<Peer>(Peer{std::move(contact), std::move(endpoints)});
  for (std::size_t i = 0; i <= num_rails; ++i)
    peer->channels.push_back({.peer = peer.get(), .index = static_cast<std::int32_t>(i)});
  num_closed_ += peer->channels.size();
}

void Carrier::begin_to_connect(Channel& channel) {
  const Peer& peer = *channel.peer;
  const auto rail = static_cast<std::size_t>(std::max(channel.index - 1, 0));
  const net::Endpoint& to = peer.endpoints[rail % peer.endpoints.size()];
  net::Connected connected = net::begin_to_connect(to, endpoints_[rail % endpoints_.size()].address);
  if (!connected.socket.valid())
    fail(ErrorCode::system, "rank {} can't connect to rank {} at {}", self_, peer.contact.rank, connected.why_not);
  channel.introduction = Introduction(std::move(connected.socket));
  channel.state = Channel::State::connecting;
  channels_.emplace(channel.fd(), &channel);
  watch(channel.fd(), EPOLLOUT, true);
}

void Carrier::greet(Channel& channel) {
  Peer& peer = *channel.peer;
  const std::string why_not = net::why_not_connected(channel.introduction.socket());
  if (!why_not.empty()) return lose(peer, "can't connect: " + why_not);
  if (!channel.introduction.say({peer.contact.session_there, self_.value, channel.index}))
    return lose(peer, "it hung up");
  channel.state = Channel::State::greeting;
  watch(channel.fd(), EPOLLIN, false);
}

void Carrier::hear_greeting(Channel& channel) {
  Peer& peer = *channel.peer;
  const auto progress = channel.introduction.hear();
  if (progress == Progress::blocked) return;
  if (progress != Progress::done) return lose(peer, "it hung up");
  if (channel.introduction.heard() != Greeting{peer.contact.session_here, peer.contact.rank.value, channel.index})
    return lose(peer, "somebody else answers in its endpoint");
  open(channel);
}

void Carrier::accept_at(const Descriptor& door) {
  net::Accepted accepted = net::accept_from(door);
  if (accepted.out_of_room && guests_.empty())
    fail(ErrorCode::system, "rank {} can't open another descriptor for the connections of other ranks", self_);
  if (accepted.out_of_room || guests_.size() == kMostGuests) guests_.pop_front();
  if (!accepted.socket.valid()) return;
  guests_.emplace_back(std::move(accepted.socket));
  watch(guests_.back().fd(), EPOLLIN, true);
}

void Carrier::hear_guest(std::list<Introduction>::iterator guest) {
  const auto progress = guest->hear();
  if (progress == Progress::blocked) return;
  Introduction known = std::move(*guest);
  guests_.erase(guest);
  if (progress == Progress::done) admit(known);
}

// Whoever is not awaited is a stranger, or a rank that came before.
void Carrier::admit(Introduction& guest) {
  const Greeting& greeting = guest.heard();
  const auto found = peers_.find(RankId(greeting.from));
  if (found == peers_.end() || found->second->is_lost) return;
  Peer& peer = *found->second;
  if (greeting.session != peer.contact.session_here || greeting.channel < 0 ||
      static_cast<std::size_t>(greeting.channel) >= peer.channels.size())
    return;
  Channel& channel = peer.channels[static_cast<std::size_t>(greeting.channel)];
  if (is_initiator(channel) || channel.state != Channel::State::awaited) return;
  if (!guest.say({peer.contact.session_there, self_.value, channel.index})) return lose(peer, "it hung up");
  channel.introduction = std::move(guest);
  channels_.emplace(channel.fd(), &channel);
  open(channel);
}

void Carrier::open(Channel& channel) {
  Peer& peer = *channel.peer;
  channel.state = Channel::State::open;
  channel.connection =
      std::make_unique<Connection>(channel.introduction.take_socket(), peer.contact.session_here, peer.contact.rank);
  if (!channel.is_for_messages() && options_.send_buffer_bytes > 0)
    (void)setsockopt(channel.fd(), SOL_SOCKET, SO_SNDBUF, &options_.send_buffer_bytes,
                     sizeof(options_.send_buffer_bytes));
  if (peer.is_reached())
    for (Channel& each : peer.channels) push(each);
  if (--num_closed_ == 0) close_doors();
}

void Carrier::close_doors() {
  for (const Introduction& guest : guests_) unwatch(guest.fd());
  for (const net::Listener& listener : listeners_) unwatch(listener.socket.get());
  guests_.clear();
  listeners_.clear();
}

}  // namespace shunt::tcp
