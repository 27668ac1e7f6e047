// Sockets that never wait: close-on-exec, TCP without Nagle's delay. An endpoint whose address is "@name" is a socket
// of this machine instead, in no file system, and for processes of the same user only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/bytes.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::net {

/// Where somebody listens.
struct Endpoint {
  /// A name or a number; of several, separated by commas, the first that answers; "@name" is a socket of this machine.
  std::string address{};
  std::uint16_t port = 0;
  /// An interface or an address of this machine to listen at, or to connect from. Empty: all.
  std::string interface {};
};

/// As in messages: "name:port" or "[number]:port".
std::string describe(const Endpoint& endpoint);
/// As bytes, without the interface, which is the other side's.
void append(Bytes& bytes, const Endpoint& endpoint);
Endpoint take_endpoint(ByteReader& reader);

/// One listener per address of the endpoint's interface, or one for all addresses of this machine; empty where the port
/// is taken. Throws Error(invalid_argument) for an interface or address that this machine does not have, Error(system).
std::vector<Descriptor> listen_at(const Endpoint& endpoint);

/// True for loopback addresses, which differ per machine.
[[nodiscard]] bool is_loopback(const std::string& address);
/// As numbers, those that other machines may reach: of this interface, or of all.
std::vector<std::string> own_addresses(const std::string& interface);

struct Accepted {
  Descriptor socket;         ///< none: no connection waits
  bool out_of_room = false;  ///< one waits, but this process may not open another descriptor
};
Accepted accept_from(const Descriptor& listener);
/// Address and port of the other side, for messages.
std::string peer_name(const Descriptor& socket);
/// The address of this side, which the other one reaches; empty for sockets of this machine.
std::string own_address(const Descriptor& socket);

/// A socket that listens, and where it can be found. Its backlog is small before accept_many().
struct Listener {
  Endpoint endpoint;  ///< the address is empty where it listens at all of them
  Descriptor socket;
};
/// At the first address of the interface, or at all addresses; a port of "first-last", or any. Throws as listen_at.
Listener open_listener(const std::string& interface, const std::string& port_range);
/// At "@name". Throws Error(system).
Listener open_local_listener(const std::string& name);
/// Accepts a crowd from now on.
void accept_many(const Listener& listener);

struct Connected {
  Descriptor socket;    ///< none: could not connect
  std::string why_not;  ///< of the last address tried
  /// The resolver knows none of the names, and would say so again; its own failures don't count.
  bool is_unknown = false;
};
/// Tries each address of each name once, from the endpoint's interface, if it has one. Looking a name up takes as long
/// as the system's resolver takes.
Connected connect_to(const Endpoint& endpoint, Deadline deadline);

/// To an address given as a number, from one of this machine, or from any where it is empty. The socket can be written
/// once why_not_connected() knows what became of it.
Connected begin_to_connect(const Endpoint& endpoint, const std::string& from);
/// Empty: it is connected.
std::string why_not_connected(const Descriptor& socket);

/// State of something that takes several attempts. `ended`: the other side has hung up; `lost`: errno says why.
enum class Progress { done, blocked, ended, lost };
/// Never waits. `num_received`: how many of the bytes have come so far.
Progress receive(int socket, std::span<std::byte> bytes, std::size_t& num_received);
/// What errno says of a call that took nothing.
Progress blocked_or_lost();

}  // namespace shunt::net
