// What peers have said about operations: before this rank issues its own part, while that is under way, and until all
// that is still to come has come.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

/// Ranks are ranks of the transport.
class Arrivals {
 public:
  /// Operations that a rank may have under way. So it can speak of no more than these that are not under way here:
  /// not yet, or no more.
  static constexpr std::int32_t kMostPending = 4096;

  explicit Arrivals(std::int32_t num_ranks) : num_kept_for_(static_cast<std::size_t>(num_ranks)) {}

  /// What one rank has said about one operation, and what it was sent.
  struct Peer {
    std::optional<Announcement> announced;
    bool done = false;
    std::uint32_t first_grant = 0;  ///< slices
    std::uint32_t granted = 0;      ///< slices it has room for, counted from the beginning
    std::uint64_t slice_bytes = 0;  ///< of each of them; the same in all its grants
    std::uint32_t num_posted = 0;   ///< slices to it
    bool has_posted_last = false;

    /// False for a grant that no honest peer gives: room for what was not sent yet, or will never be sent.
    bool grant(std::uint64_t num_slices, std::uint64_t bytes_each);
    /// One slice more for each that it has read, but the last.
    [[nodiscard]] bool has_granted_all() const { return granted > 0 && granted == most_granted(); }

   private:
    friend class Arrivals;
    [[nodiscard]] std::uint64_t most_granted() const {
      return std::uint64_t{first_grant} + num_posted - has_posted_last;
    }
    bool is_kept_for = false;  // the operation is not under way here, and remembered because of this rank
  };

  /// By rank, of an operation that this rank has issued.
  std::vector<Peer>& of(const Operation::Key& key);
  /// To be told what `from` says; nullptr if it speaks of more operations than it can have under way.
  Peer* hear(RankId from, const Operation::Key& key);
  /// After what hear() gave was told: forgets an operation of which nothing more is to come.
  void settle(const Operation::Key& key);
  /// The operation is over here, but its far partners may still grant what nobody needs. A partner that owes this for
  /// more operations than it can have under way is returned.
  std::optional<RankId> complete(const Operation::Key& key, std::span<const RankId> far_partners);

  [[nodiscard]] std::size_t num_operations() const { return by_operation_.size(); }

 private:
  enum class Stage : std::uint8_t { ahead, under_way, over };
  struct Entry {
    Stage stage = Stage::ahead;
    std::vector<Peer> peers;
  };
  struct HashKey {
    std::size_t operator()(const Operation::Key& key) const {
      return key.engine ^ (std::uint64_t{key.sequence} * 0x9e3779b97f4a7c15ull);
    }
  };

  Entry& entry(const Operation::Key& key);
  /// False if too many are kept.
  bool keep_for(RankId rank, Peer& peer);
  void let_go(std::size_t rank, Peer& peer);

  std::unordered_map<Operation::Key, Entry, HashKey> by_operation_;
  std::vector<std::int32_t> num_kept_for_;  // operations, by rank
};

}  // namespace shunt
