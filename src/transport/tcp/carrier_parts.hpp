// What a carrier keeps of its peers and of its connections to them.
#pragma once

#include <algorithm>

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
  std::vector<net::Endpoint> endpoints;
  std::vector<Channel> channels{};
  std::size_t next_rail = 0;
  std::deque<std::unique_ptr<far::Packet>> messages{};
  std::deque<std::unique_ptr<far::Packet>> slices{};
  bool is_lost = false;
  bool is_buried = false;  // and the receiver knows
  std::string why_lost{};

  /// All of its channels stand, or have stood.
  [[nodiscard]] bool is_reached() const {
    return !is_lost && std::ranges::all_of(channels, [](const Channel& each) { return each.connection != nullptr; });
  }
  /// On all channels that have stood, where one has; it will not begin others.
  [[nodiscard]] bool has_hung_up() const {
    return std::ranges::all_of(channels, [](const Channel& each) {
      return each.state == Channel::State::ended || each.state == Channel::State::awaited;
    });
  }
};

}  // namespace shunt::tcp
