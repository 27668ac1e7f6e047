#include "transport/net/roster.hpp"

namespace shunt::net {

Bytes encode_roster(std::span<const Meeting::Guest> guests) {
  Bytes bytes;
  for (const Meeting::Guest& guest : guests) {
    append(bytes, guest.nonce);
    append(bytes, static_cast<std::uint32_t>(guest.card.size()));
    append(bytes, guest.card);
  }
  return bytes;
}

std::optional<std::vector<Meeting::Guest>> decode_roster(std::span<const std::byte> bytes, std::int32_t size) {
  ByteReader reader(bytes);
  std::vector<Meeting::Guest> guests;
  while (reader.ok() && !reader.at_end()) {
    const auto nonce = reader.take<Nonce>();
    const auto card = reader.take(reader.take<std::uint32_t>());
    guests.push_back({nonce, {card.begin(), card.end()}});
  }
  if (!reader.ok() || guests.size() != static_cast<std::size_t>(size)) return std::nullopt;
  return guests;
}

}  // namespace shunt::net
