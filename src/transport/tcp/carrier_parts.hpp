// What a carrier keeps of its peers and of its connections to them.
#pragma once

#include "transport/tcp/carrier.hpp"
#include "transport/tcp/introduction.hpp"

namespace shunt::tcp {

/// One connection to a peer.
struct Carrier::Channel {
  enum class State { awaited, connecting, greeting, open, ended };

  Peer* peer;
  std::int32_t index;  // 0 is for messages, the others are rails
  State state = State::awaited;
  bool awaits_room = false;  // to write
  Introduction introduction{};
  std::unique_ptr<Connection> connection{};  // once it is open

  [[nodiscard]] bool is_for_messages() const { return index == 0; }
  [[nodiscard]] int fd() const { return connection ? connection->fd() : introduction.fd(); }
};

struct Carrier::Peer {
  far::Contact contact;
  std::vector<net::MeetingPlace> places;
  std::vector<Channel> channels{};
  std::size_t num_open = 0;   // since when they may have ended
  std::size_t num_ended = 0;  // by the peer
  std::size_t next_rail = 0;
  std::deque<std::unique_ptr<far::Parcel>> messages{};
  std::deque<std::unique_ptr<far::Parcel>> slices{};
  bool is_lost = false;
  bool is_buried = false;  // and the receiver knows
  std::string why_lost{};

  [[nodiscard]] bool is_reached() const { return num_open == channels.size() && !is_lost; }
};

}  // namespace shunt::tcp
