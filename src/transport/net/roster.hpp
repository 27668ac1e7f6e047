// Everybody's cards and nonces, as the bytes that the host hands out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/net/bytes.hpp"
#include "transport/net/frames.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::net {

/// Of one guest: rank, nonce, address, card.
constexpr std::size_t kMaxRosterEntryBytes = 3 * sizeof(std::uint32_t) + sizeof(Nonce) + 256 + kMaxCardBytes;

Bytes encode_roster(std::span<const Meeting::Guest> guests);
/// Empty unless it names different ranks below `size`, in order.
std::optional<std::vector<Meeting::Guest>> decode_roster(std::span<const std::byte> bytes, std::int32_t size);

}  // namespace shunt::net
