#include "engine/shuffle.hpp"

#include <cstring>

#include "core/fail.hpp"

namespace shunt {

std::byte* Shuffle::announced_block(RankId rank, const Announcement& peer, std::size_t expected_bytes) const {
  if (peer.bytes != expected_bytes)
    fail(ErrorCode::mismatch, "rank {} announced {} bytes for {} #{}, rank {} expected {}", rank, peer.bytes,
         to_string(peer.kind), key().sequence, group().self, expected_bytes);
  return peer_block(rank, peer.offset, expected_bytes);
}

std::byte* Shuffle::peer_block(RankId rank, std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  return transport_.peer_pointer(group().members[rank.index()], offset, bytes);
}

void zero_padding(const PlanData& plan, std::byte* rows, std::size_t row_bytes) {
  for_each_padding(plan, [&](std::int64_t begin, std::int64_t end) {
    std::memset(rows + static_cast<std::size_t>(begin) * row_bytes, 0,
                static_cast<std::size_t>(end - begin) * row_bytes);
  });
}

}  // namespace shunt
