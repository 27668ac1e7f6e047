// Sockets that never wait: close-on-exec, TCP without Nagle's delay. An endpoint whose address is "@name" is a Unix
// socket without a file, for processes of the same user only.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shunt/ids.hpp"
#include "transport/net/bytes.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::net {

/// Where a socket listens.
struct Endpoint {
  /// A name or a number, or several, separated by commas, of which the first that answers counts; "@name": a Unix
  /// socket.
  std::string address{};
  std::uint16_t port = 0;
  /// An interface or an address of this machine to listen at, or to connect from. Empty: all.
  std::string interface {};
};

/// As in messages: "name:port" or "[number]:port".
std::string describe(const Endpoint& endpoint);

/// How a rank reaches another one of its world.
struct Contact {
  RankId rank;
  Bytes address{};         ///< far::Carrier::address() of a far rank
  std::string known_as{};  ///< where a near rank listens; a far one's network address, where its carrier gives none
  std::uint64_t session_there = 0;  ///< carried by what is sent to it
  std::uint64_t session_here = 0;   ///< carried by what it sends; all else is dropped unread
};

/// Where the socket is bound; 0 for one that is not, or that has no ports.
std::uint16_t port_of(int socket);

/// One listener per address of the endpoint's interface, or one for all addresses of this machine; empty where the port
/// is taken. Throws Error(invalid_argument) for an interface or address that this machine does not have, Error(system).
std::vector<Descriptor> listen_at(const Endpoint& endpoint, int backlog = SOMAXCONN);

/// True for loopback addresses, which differ per machine.
[[nodiscard]] bool is_loopback(const std::string& address);
/// Addresses, as numbers, that other machines may reach: of this interface, or of all.
std::vector<std::string> own_addresses(const std::string& interface);

struct Accepted {
  Descriptor socket;         ///< none: no connection waits
  bool out_of_room = false;  ///< one waits, but this process may not open another descriptor
};
Accepted accept_from(const Descriptor& listener);
/// Address and port of the other side, for messages.
std::string peer_name(const Descriptor& socket);
/// The address of this side, which the other one reaches; empty for local sockets.
std::string own_address(const Descriptor& socket);

/// A listening socket and its endpoint. Its backlog is small before accept_many().
struct Listener {
  Endpoint endpoint;  ///< the address is empty where it listens at all of them
  Descriptor socket;
};
/// At the first address of the interface, or at all addresses; a port of "first-last", or any. Throws as listen_at.
Listener open_listener(const std::string& interface, const std::string& port_range);
/// At "@name". Throws Error(system).
Listener open_local_listener(const std::string& address);
/// Makes the backlog as large as the system allows.
void accept_many(const Listener& listener);

struct Connected {
  Descriptor socket{};      ///< none: could not connect
  std::string why_not{};    ///< of the last address tried
  bool is_unknown = false;  ///< the names do not exist; failures of the resolver don't count
  bool is_busy = false;     ///< the listener has no room yet
};
/// Tries each address of each name once, from the endpoint's interface, if it has one. Looking a name up takes as long
/// as the system's resolver takes.
Connected connect_to(const Endpoint& endpoint, Deadline deadline);

/// To an address given as a number, from one of this machine, or from any where it is empty. Once the socket can be
/// written, why_not_connected() returns the outcome.
Connected begin_to_connect(const Endpoint& endpoint, const std::string& from);
/// Empty: it is connected.
std::string why_not_connected(const Descriptor& socket);

/// Outcome of an attempt that never blocks. `ended`: the other side has hung up; `lost`: errno has the cause.
enum class IoStatus { done, blocked, ended, lost };
/// Never waits. `num_received`: how many of the bytes have arrived so far.
IoStatus receive(int socket, std::span<std::byte> bytes, std::size_t& num_received);
/// From errno, after a call that transferred nothing.
IoStatus blocked_or_lost();

}  // namespace shunt::net
