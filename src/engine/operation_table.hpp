// The operations in progress on this rank, by key, with the signals of peers for each. Entries are created by a peer's
// first signal or by this rank's issue, and end when no more signals can come.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/operation.hpp"
#include "shunt/ticket.hpp"
#include "transport/transport.hpp"

namespace shunt {

enum class Signal : std::uint8_t {
  announce,  ///< to near ranks: the operation was issued, with this memory
  done,      ///< to near ranks: their memory is no longer needed
  grant,     ///< to far ranks: issued, with room for `offset` more slices of at most `bytes`
};

/// A signal as it travels.
struct SignalRecord {
  std::uint64_t engine = 0;
  std::uint32_t sequence = 0;
  Signal signal = Signal::announce;
  OpKind kind = OpKind::plan;
  std::uint16_t unused = 0;
  std::uint64_t plan_hash = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t second_offset = 0;
};
static_assert(sizeof(SignalRecord) <= kMaxMessageBytes);

/// All RankIds are ranks of the transport.
class OperationTable {
 public:
  /// Limit on the operations not in progress here that one rank may signal: its tickets, and as many blocking calls,
  /// each by a thread of its own.
  static constexpr std::int32_t kMostKept = 2 * kMostTickets;

  explicit OperationTable(std::int32_t num_ranks) : num_kept_for_(static_cast<std::size_t>(num_ranks)) {}

  /// The signals of one rank for one operation.
  struct Peer {
    std::optional<Announcement> announced;
    bool is_done = false;
    bool is_partner = false;                ///< the operation in progress here depends on it
    std::unique_ptr<SliceChannel> channel;  ///< far ranks only

   private:
    friend class OperationTable;
    bool is_kept_for = false;  // counted in num_kept_for_
  };

  struct Entry {
    std::shared_ptr<Operation> operation;  ///< while in progress here
    std::map<RankId, Peer> peers;          ///< participants known so far
    std::uint32_t num_unannounced = 0;     ///< partners that have not announced it
    std::uint32_t num_undone = 0;          ///< near partners that have not signalled `done`
    bool is_over = false;
    std::uint64_t order = 0;  ///< in which operations were issued
  };

  /// The entry of an operation that this rank issues.
  Entry& start(std::shared_ptr<Operation> operation);
  /// nullptr if the operation is not in progress here.
  Entry* find(const Operation::Key& key);
  /// The entry for a signal of `from`; nullptr if that rank signals more operations than it may.
  Entry* entry_for(RankId from, const Operation::Key& key);
  /// Call after a signal was stored: removes the entry if no more signals can come.
  void settle(const Operation::Key& key);
  /// The operation is complete here, but grants of far partners may still arrive. Returns a partner that owes grants to
  /// more operations than it may.
  std::optional<RankId> complete(const Operation::Key& key);

  /// Operations in progress here, in the order of their issue.
  [[nodiscard]] std::vector<Entry*> live();
  [[nodiscard]] std::size_t size() const { return by_key_.size(); }

 private:
  struct HashKey {
    std::size_t operator()(const Operation::Key& key) const {
      return key.engine ^ (std::uint64_t{key.sequence} * 0x9e3779b97f4a7c15ull);
    }
  };

  /// Counts the entry as kept for the rank; false if too many are.
  bool keep(RankId rank, Peer& peer);
  void release(RankId rank, Peer& peer);

  std::unordered_map<Operation::Key, Entry, HashKey> by_key_;
  std::vector<std::int32_t> num_kept_for_;  // operations, by rank
  std::uint64_t num_started_ = 0;
};

}  // namespace shunt
