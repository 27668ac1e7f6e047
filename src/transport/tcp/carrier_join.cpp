// How connections come to stand: the lower rank of two connects, both say who they are.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <sstream>

#include "core/fail.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/tcp/carrier_parts.hpp"
#include "transport/tcp/places.hpp"

namespace shunt::tcp {
namespace {

// Of connections that have not said who they are; then the oldest give way.
constexpr std::size_t kMostGuests = 1024;

}  // namespace

Carrier::Carrier(const Options& options) : options_(options), events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!events_.valid()) fail_errno("can't watch connections");
  std::istringstream names(options_.interfaces);
  for (std::string name; std::getline(names, name, ',');) seats_.push_back(net::take_seat(name, options_.port_range));
  if (seats_.empty()) seats_.push_back(net::take_seat("", options_.port_range));
  for (const net::Seat& seat : seats_) places_.push_back(seat.place);
}

std::vector<std::byte> Carrier::address() const { return encode(places_); }

void Carrier::connect(RankId self, std::vector<far::Contact> contacts, far::Receiver& receiver,
                      std::shared_ptr<far::Wake> wake) {
  self_ = self;
  receiver_ = &receiver;
  wake_ = std::move(wake);
  watch(wake_->fd(), EPOLLIN, true);
  for (const net::Seat& seat : seats_) watch(seat.listener.get(), EPOLLIN, true);
  for (far::Contact& contact : contacts) add_peer(std::move(contact));
  for (const auto& [rank, peer] : peers_)
    if (self_ < rank)
      for (Channel& channel : peer->channels) begin_to_connect(channel);
}

void Carrier::add_peer(far::Contact contact) {
  auto& peer = peers_[contact.rank];
  auto places = decode_places(contact.address, contact.met_at);
  const std::size_t num_rails = std::max(places.size(), places_.size());
  peer = std::make_unique<Peer>(Peer{std::move(contact), std::move(places)});
  for (std::size_t i = 0; i <= num_rails; ++i)
    peer->channels.push_back({.peer = peer.get(), .index = static_cast<std::int32_t>(i)});
  num_closed_ += peer->channels.size();
}

void Carrier::begin_to_connect(Channel& channel) {
  const Peer& peer = *channel.peer;
  const auto rail = static_cast<std::size_t>(std::max(channel.index - 1, 0));
  const net::MeetingPlace& to = peer.places[rail % peer.places.size()];
  auto [socket, why_not] = net::begin_to_connect(to, places_[rail % places_.size()].address);
  if (!socket.valid())
    fail(ErrorCode::system, "rank {} can't connect to rank {} at {}", self_, peer.contact.rank, why_not);
  channel.introduction = Introduction(std::move(socket));
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
  if (progress == Introduction::Progress::blocked) return;
  if (progress == Introduction::Progress::lost) return lose(peer, "it hung up");
  if (channel.introduction.heard() != Greeting{peer.contact.session_here, peer.contact.rank.value, channel.index})
    return lose(peer, "somebody else answers in its place");
  open(channel);
}

void Carrier::accept_at(const Descriptor& door) {
  net::Accepted accepted = net::accept_from(door);
  if (accepted.out_of_room) fail(ErrorCode::system, "there is no room for the connections of other ranks");
  if (!accepted.socket.valid()) return;
  if (guests_.size() == kMostGuests) guests_.pop_front();
  guests_.emplace_back(std::move(accepted.socket));
  watch(guests_.back().fd(), EPOLLIN, true);
}

void Carrier::hear_guest(std::list<Introduction>::iterator guest) {
  const auto progress = guest->hear();
  if (progress == Introduction::Progress::blocked) return;
  Introduction known = std::move(*guest);
  guests_.erase(guest);
  if (progress == Introduction::Progress::done) admit(known);
}

// Whoever is not awaited is a stranger, or a rank that came before.
void Carrier::admit(Introduction& guest) {
  const Greeting& greeting = guest.heard();
  const auto found = peers_.find(RankId(greeting.from));
  if (found == peers_.end() || found->first > self_ || found->second->is_lost) return;
  Peer& peer = *found->second;
  if (greeting.session != peer.contact.session_here || greeting.channel < 0 ||
      static_cast<std::size_t>(greeting.channel) >= peer.channels.size())
    return;
  Channel& channel = peer.channels[static_cast<std::size_t>(greeting.channel)];
  if (channel.state != Channel::State::awaited) return;
  if (!guest.say({peer.contact.session_there, self_.value, channel.index})) return lose(peer, "it hung up");
  channel.introduction = std::move(guest);
  channels_.emplace(channel.fd(), &channel);
  open(channel);
}

void Carrier::open(Channel& channel) {
  Peer& peer = *channel.peer;
  channel.state = Channel::State::open;
  channel.connection.emplace(channel.introduction.take_socket(), peer.contact.session_here, peer.contact.rank);
  if (!channel.is_for_messages() && options_.send_buffer_bytes > 0)
    (void)setsockopt(channel.fd(), SOL_SOCKET, SO_SNDBUF, &options_.send_buffer_bytes,
                     sizeof(options_.send_buffer_bytes));
  ++peer.num_open;
  if (peer.is_reached())
    for (Channel& each : peer.channels) push(each);
  if (--num_closed_ == 0) close_doors();
}

void Carrier::close_doors() {
  guests_.clear();
  seats_.clear();
}

}  // namespace shunt::tcp
