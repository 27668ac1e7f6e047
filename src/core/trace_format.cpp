#include "core/trace_format.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace shunt::trace_format {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t header_checksum(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

}  // namespace shunt::trace_format
