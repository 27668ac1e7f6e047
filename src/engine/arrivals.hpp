// What peers have said about operations, kept until this rank has issued and completed its own part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/operation.hpp"
#include "transport/transport.hpp"

namespace shunt {

enum class Signal : std::uint8_t {
  announce,  ///< to near ranks: here, with this memory
  done,      ///< to near ranks: needs their memory no more
  grant,     ///< to far ranks: here, and room for `offset` more slices of at most `bytes`
};

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
    std::uint32_t granted = 0;      ///< slices it has room for, counted from the beginning
    std::uint64_t slice_bytes = 0;  ///< of each of them; the same in all its grants

    /// False for a grant that no honest peer gives.
    bool grant(std::uint64_t num_slices, std::uint64_t bytes_each) {
      constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
      if (bytes_each == 0 || bytes_each > kMost || num_slices > kMost - std::min<std::uint64_t>(kMost, granted) ||
          (slice_bytes != 0 && slice_bytes != bytes_each))
        return false;
      granted += static_cast<std::uint32_t>(num_slices);
      slice_bytes = bytes_each;
      return true;
    }
  };

  /// By transport rank.
  std::vector<Peer>& of(const Operation::Key& key) {
    auto& peers = by_operation_[key];
    if (peers.empty()) peers.resize(num_ranks_);
    return peers;
  }
  /// As of(), for what comes from a peer: nullptr if the operation has completed here, as grants may still be coming.
  std::vector<Peer>* still_of(const Operation::Key& key) {
    const auto engine = completed_.find(key.engine);
    if (engine != completed_.end() && engine->second.contains(key.sequence)) return nullptr;
    return &of(key);
  }
  void complete(const Operation::Key& key) {
    by_operation_.erase(key);
    completed_[key.engine].insert(key.sequence);
  }

 private:
  struct HashKey {
    std::size_t operator()(const Operation::Key& key) const {
      return key.engine ^ (std::uint64_t{key.sequence} * 0x9e3779b97f4a7c15ull);
    }
  };

  /// Operations of one engine may complete out of order, but not far out of it.
  class Completed {
   public:
    void insert(std::uint32_t sequence) {
      beyond_.insert(sequence);
      while (beyond_.erase(all_below_) > 0) ++all_below_;
    }
    [[nodiscard]] bool contains(std::uint32_t sequence) const {
      return sequence < all_below_ || beyond_.count(sequence) > 0;
    }

   private:
    std::uint32_t all_below_ = 0;
    std::set<std::uint32_t> beyond_;
  };

  std::size_t num_ranks_;
  std::unordered_map<Operation::Key, std::vector<Peer>, HashKey> by_operation_;
  std::unordered_map<std::uint64_t, Completed> completed_;  // by engine
};

}  // namespace shunt
