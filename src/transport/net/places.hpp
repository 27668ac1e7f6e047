// Places as the bytes by which ranks are told of them.
#pragma once

#include <string>

#include "transport/net/bytes.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::net {

inline void append(Bytes& bytes, const MeetingPlace& place) {
  append(bytes, place.port);
  append(bytes, static_cast<std::uint32_t>(place.address.size()));
  append(bytes, bytes_of(place.address));
}

/// Without the interface, which is the other side's.
inline MeetingPlace take_place(ByteReader& reader) {
  MeetingPlace place;
  place.port = reader.take<std::uint16_t>();
  const auto address = reader.take(reader.take<std::uint32_t>());
  place.address.assign(reinterpret_cast<const char*>(address.data()), address.size());
  return place;
}

}  // namespace shunt::net
