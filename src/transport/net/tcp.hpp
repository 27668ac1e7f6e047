// Sockets that never wait: close-on-exec, TCP without Nagle's delay. Where a place's address is "@name", they are
// sockets of this machine instead, in no file system, and for processes of the same user only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/net/meeting.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::net {

/// As in messages: "name:port" or "[number]:port".
std::string describe(const MeetingPlace& place);

/// One listener per address of the place's interface, or one for all addresses of this host. Throws
/// Error(invalid_argument) for an interface or address that this host does not have, Error(system).
std::vector<Descriptor> listen_at(const MeetingPlace& place);

/// Of a number: whether it means another host on every host.
[[nodiscard]] bool is_loopback(const std::string& address);
/// As numbers, those that other hosts may reach: of this interface, or of all.
std::vector<std::string> own_addresses(const std::string& interface);

struct Accepted {
  Descriptor socket;         ///< none: nobody waits
  bool out_of_room = false;  ///< somebody waits, but this process may not open another descriptor
};
Accepted accept_from(const Descriptor& listener);
/// Address and port of the other side, for messages.
std::string peer_name(const Descriptor& socket);
/// Its address alone, to connect to.
std::string peer_address(const Descriptor& socket);

/// Where a rank can be found, and what listens there; few can wait there before expect_visitors().
struct Seat {
  MeetingPlace place;  ///< the address is empty where the rank listens everywhere
  Descriptor listener;
};
/// At the first address of the interface, or everywhere; a port of "first-last", or any. Throws as listen_at.
Seat take_seat(const std::string& interface, const std::string& port_range);
/// At "@name".
Seat take_local_seat(const std::string& name);
/// From now on many may come at once.
void expect_visitors(const Seat& seat);

struct Connected {
  Descriptor socket;    ///< none: could not connect
  std::string why_not;  ///< of the last address tried
  /// The resolver knows none of the place's names, and would say so again; its own failures don't count.
  bool is_unknown = false;
};
/// Tries each address of each name once, from the place's interface, if it has one. Looking a name up takes as long as
/// the system's resolver takes.
Connected connect_to(const MeetingPlace& place, Deadline deadline);

/// To an address given as a number, from one of this host, or from any where it is empty. The socket can be written
/// once why_not_connected() knows what became of it.
Connected begin_to_connect(const MeetingPlace& place, const std::string& from);
/// Empty: it is connected.
std::string why_not_connected(const Descriptor& socket);

}  // namespace shunt::net
