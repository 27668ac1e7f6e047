// Everybody's cards and nonces, as the bytes that rank 0 hands out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/net/bytes.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::net {

Bytes encode_roster(std::span<const Meeting::Guest> guests);
/// Empty unless it names exactly so many ranks.
std::optional<std::vector<Meeting::Guest>> decode_roster(std::span<const std::byte> bytes, std::int32_t size);

}  // namespace shunt::net
