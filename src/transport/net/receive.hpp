// Bytes of a connection, as far as they have come.
#pragma once

#include <cstddef>
#include <span>

namespace shunt::net {

/// Of something that takes several attempts. `ended`: the other side has hung up; `lost`: errno says why.
enum class Progress { done, blocked, ended, lost };

/// Never waits. `num_received`: how many of the bytes have come so far.
Progress receive(int socket, std::span<std::byte> bytes, std::size_t& num_received);

/// What errno says of a call that took nothing.
Progress blocked_or_lost();

}  // namespace shunt::net
