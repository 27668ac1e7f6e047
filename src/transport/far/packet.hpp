// What travels between far ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/slice_link.hpp"

namespace shunt::far {

enum class Kind : std::uint8_t {
  message,
  read,  ///< the receiver has polled a fixed number of messages
  slice,
  fault,
  ping,
  alive,  ///< the answer to a ping
  left,   ///< the last packet but slices, whose number it holds
  left_ack,
};

/// Goes before the bytes of every packet. Nothing in it is trusted before the session is checked.
struct Header {
  std::uint64_t session = 0;
  std::uint64_t engine = 0;
  std::uint32_t sequence = 0;
  std::uint32_t index = 0;
  std::int32_t from = 0;
  Kind kind{};
  std::uint8_t is_last = 0;
  std::uint16_t unused = 0;
};

struct Packet {
  RankId to;
  Header header;
  std::vector<std::byte> small{};
  OutSlice slice{};  // sent instead of `small` where the kind is slice
  std::size_t slice_bytes = 0;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return header.kind == Kind::slice ? slice.bytes.first(slice_bytes) : std::span<const std::byte>(small);
  }
};

}  // namespace shunt::far
