// Every rank shows its bytes to every other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/fabric.hpp"
#include "engine/operation.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Every member's bytes, by rank. They lie in the peers' memory: valid during the call only, and not to be trusted.
using ReadAll = std::function<void(std::span<const std::span<const std::byte>>)>;

/// Where an exchange stands: in the order of an engine or of a world.
struct ExchangePlace {
  Fabric& fabric;
  const std::shared_ptr<const Group>& group;
  const Topology& topology;
  std::uint64_t engine;
  std::uint32_t& next_sequence;
  std::chrono::milliseconds deadline;
  std::string_view engine_name = {};
};

/// More than any rank shows at a time; who sends more over the network is a liar.
inline constexpr std::size_t kMostExchangedBytes = std::size_t{256} << 20;

/// How much of a rank's bytes is for far ranks.
struct ForFar {
  std::size_t bytes;                             ///< of this rank's; the first ones
  std::size_t most_bytes = kMostExchangedBytes;  ///< of any rank's
};

/// Collective, blocking. `kind` is what the caller was called for; all ranks' must match.
void exchange(const ExchangePlace& place, OpKind kind, std::span<const std::byte> mine, const ForFar& for_far,
              const ReadAll& read);

/// What a rank sends to, or has from, one far rank.
struct FarBytes {
  RankId rank;
  std::vector<std::byte> bytes;
};

/// Of whom a rank knows that it will send, and that it will not send more.
struct FarSender {
  RankId rank;
  std::size_t most_bytes;
};

/// Collective, blocking: every rank sends to some far ranks, and all know from whom they hear. `plan_hash` must be
/// equal on all. Returns what `senders` sent, in their order.
std::vector<FarBytes> swap_far(const ExchangePlace& place, OpKind kind, std::uint64_t plan_hash,
                               std::vector<FarBytes> outgoing, std::span<const FarSender> senders);

}  // namespace shunt
