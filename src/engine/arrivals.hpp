// What peers have said about operations, kept until this rank has issued and completed its own part.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/operation.hpp"
#include "transport/transport.hpp"

namespace shunt {

enum class Signal : std::uint8_t { announce, done };

/// How an operation's signals travel.
struct SignalRecord {
  std::uint64_t engine;
  std::uint32_t sequence;
  Signal signal;
  OpKind kind;
  std::uint16_t unused;
  std::uint64_t plan_hash;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t second_offset;
};
static_assert(sizeof(SignalRecord) <= kMaxMessageBytes);

class Arrivals {
 public:
  explicit Arrivals(std::int32_t num_transport_ranks) : num_ranks_(static_cast<std::size_t>(num_transport_ranks)) {}

  struct Peer {
    std::optional<Announcement> announced;
    bool done = false;
  };

  /// By transport rank.
  std::vector<Peer>& of(const Operation::Key& key) {
    auto& peers = by_operation_[key];
    if (peers.empty()) peers.resize(num_ranks_);
    return peers;
  }
  void forget(const Operation::Key& key) { by_operation_.erase(key); }

 private:
  struct HashKey {
    std::size_t operator()(const Operation::Key& key) const {
      return key.engine ^ (std::uint64_t{key.sequence} * 0x9e3779b97f4a7c15ull);
    }
  };

  std::size_t num_ranks_;
  std::unordered_map<Operation::Key, std::vector<Peer>, HashKey> by_operation_;
};

}  // namespace shunt
