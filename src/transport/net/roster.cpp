#include "transport/net/roster.hpp"

namespace shunt::net {

Bytes encode_roster(std::span<const Meeting::Guest> guests) {
  Bytes bytes;
  for (const Meeting::Guest& guest : guests) {
    append(bytes, guest.rank.value);
    append(bytes, guest.nonce);
    append(bytes, static_cast<std::uint32_t>(guest.address.size()));
    append(bytes, bytes_of(guest.address));
    append(bytes, static_cast<std::uint32_t>(guest.card.size()));
    append(bytes, guest.card);
  }
  return bytes;
}

std::optional<std::vector<Meeting::Guest>> decode_roster(std::span<const std::byte> bytes, std::int32_t size) {
  ByteReader reader(bytes);
  std::vector<Meeting::Guest> guests;
  while (reader.ok() && !reader.at_end()) {
    const RankId rank(reader.take<std::int32_t>());
    const auto nonce = reader.take<Nonce>();
    const auto address = reader.take(reader.take<std::uint32_t>());
    const auto card = reader.take(reader.take<std::uint32_t>());
    if (rank.value >= size || (guests.empty() ? !rank.valid() : rank <= guests.back().rank)) return std::nullopt;
    guests.push_back(
        {rank, nonce, {reinterpret_cast<const char*>(address.data()), address.size()}, {card.begin(), card.end()}});
  }
  if (!reader.ok()) return std::nullopt;
  return guests;
}

}  // namespace shunt::net
