// All-gathers and exchanges of bytes among the ranks of a world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/operation.hpp"
#include "engine/world_impl.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Receives every member's bytes, by rank. They are in the peers' memory: valid during the call only, and untrusted.
using ReadAll = std::function<void(std::span<const std::span<const std::byte>>)>;

/// The world of an exchange, and its place in the order of an engine or of the world.
struct ExchangePlace {
  CommContext& comm;
  const std::shared_ptr<const Group>& group;
  const Topology& topology;
  std::uint64_t engine;
  std::uint32_t& next_sequence;
  std::chrono::milliseconds deadline;
  std::string_view engine_name = {};
};

/// Upper bound on one rank's contribution; more from the network is a protocol error.
inline constexpr std::size_t kMostExchangedBytes = std::size_t{256} << 20;

/// The part of each rank's bytes that travels to far nodes.
struct ForFar {
  std::size_t bytes;                             ///< of this rank: a prefix
  std::size_t most_bytes = kMostExchangedBytes;  ///< upper bound for any rank
};

/// Collective, blocking: an all-gather. `kind` is the public call that needs it; it must match on all ranks.
void exchange(const ExchangePlace& place, OpKind kind, std::span<const std::byte> mine, const ForFar& for_far,
              const ReadAll& read);
/// The same; returns copies of all members' bytes, by rank.
std::vector<std::vector<std::byte>> gather(const ExchangePlace& place, OpKind kind, std::span<const std::byte> mine,
                                           const ForFar& for_far);

/// Bytes to or from one far rank.
struct FarBytes {
  RankId rank;
  std::vector<std::byte> bytes;
};

/// A far rank that sends to this one, with an upper bound.
struct FarSender {
  RankId rank;
  std::size_t most_bytes;
};

/// Collective, blocking: every rank sends to some far ranks, and names those that send to it. `plan_hash` must be equal
/// on all. Returns the bytes of `senders`, in their order.
std::vector<FarBytes> swap_far(const ExchangePlace& place, OpKind kind, std::uint64_t plan_hash,
                               std::vector<FarBytes> outgoing, std::span<const FarSender> senders);

}  // namespace shunt
