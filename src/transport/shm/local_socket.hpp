// Sequenced-packet Unix sockets that pass descriptors between processes of one user. None of them waits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "transport/wait_ready.hpp"

namespace shunt::shm {

/// The name is abstract: it has no place in the file system. Throws Error(system).
Descriptor listen_at(const std::string& name);

struct Connecting {
  Descriptor socket;     ///< none: could not connect
  bool is_full = false;  ///< the listener has no room now
};
/// Throws Error(system) where another user listens.
Connecting connect_to(const std::string& name);
/// A connection that is waiting to be accepted; empty if none is, or if it was another user's, who is turned away.
std::optional<Descriptor> accept_from(const Descriptor& listener);
std::pair<Descriptor, Descriptor> socket_pair();

/// What a rank says to a near one first, with the descriptor of its segment.
struct Hello {
  std::uint64_t session = 0;  ///< of messages from this rank to that one
  std::int32_t rank = -1;     ///< of the world
  std::int32_t unused = 0;
};

/// `again`: too many descriptors of this user are on their way. `gone`: so is the other side.
enum class Sent { done, again, gone };
/// Throws Error(system) when the machine refuses.
Sent send_hello(const Descriptor& socket, const Hello& hello, int fd);

struct ReceivedHello {
  Hello hello;
  Descriptor descriptor;
};
/// To be called once the socket is readable. Empty when the other side is gone, or says something else.
std::optional<ReceivedHello> receive_hello(const Descriptor& socket);

}  // namespace shunt::shm
