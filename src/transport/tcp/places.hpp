// Where a rank can be reached, one place per rail, as the bytes that its peers are told.
#pragma once

#include <vector>

#include "core/fail.hpp"
#include "transport/net/bytes.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::tcp {

inline net::Bytes encode(const std::vector<net::MeetingPlace>& places) {
  net::Bytes bytes;
  for (const net::MeetingPlace& place : places) {
    net::append(bytes, place.port);
    net::append(bytes, static_cast<std::uint32_t>(place.address.size()));
    net::append(bytes, net::bytes_of(place.address));
  }
  return bytes;
}

/// An address that its rank does not know itself is the one from which it came. Throws Error(mismatch).
inline std::vector<net::MeetingPlace> decode_places(std::span<const std::byte> bytes, const std::string& came_from) {
  std::vector<net::MeetingPlace> places;
  net::ByteReader reader(bytes);
  while (reader.ok() && !reader.at_end()) {
    const auto port = reader.take<std::uint16_t>();
    const auto address = reader.take(reader.take<std::uint32_t>());
    places.push_back({std::string(reinterpret_cast<const char*>(address.data()), address.size()), port, ""});
    if (places.back().address.empty()) places.back().address = came_from;
  }
  if (!reader.ok() || places.empty()) fail(ErrorCode::mismatch, "{} bytes say where no rank is", bytes.size());
  return places;
}

}  // namespace shunt::tcp
