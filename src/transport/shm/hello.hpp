// The first message between two processes of one machine, over a local socket. Never waits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/descriptor.hpp"

namespace shunt::shm {

/// Travels with the descriptor of the sender's segment.
struct Hello {
  std::uint64_t session = 0;  ///< from this rank to that one
  std::int32_t rank = -1;     ///< of the world
  std::int32_t unused = 0;
};

/// `again`: too many descriptors of this user are in flight. `gone`: the other side has hung up.
enum class Sent { done, again, gone };
/// Throws Error(system) when the machine refuses.
Sent send_hello(const Descriptor& socket, const Hello& hello, int fd);

struct ReceivedHello {
  Hello hello;
  Descriptor descriptor;
};
/// Call once the socket is readable. Empty when the other side has hung up, or sent something else.
std::optional<ReceivedHello> receive_hello(const Descriptor& socket);

}  // namespace shunt::shm
