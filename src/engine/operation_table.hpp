// The operations that are under way here, by key, and what peers have said about each: before this rank issues its own
// part, while that is under way, and until all that is still to come has come.
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
class OperationTable {
 public:
  /// Operations that are not under way here, not yet or no more, of which one rank may speak: its tickets, and as many
  /// calls that block, each a thread of its own.
  static constexpr std::int32_t kMostKept = 2 * kMostTickets;

  explicit OperationTable(std::int32_t num_ranks) : num_kept_for_(static_cast<std::size_t>(num_ranks)) {}

  /// What one rank has said about one operation.
  struct Peer {
    std::optional<Announcement> announced;
    bool is_done = false;
    bool is_partner = false;                ///< the operation under way here counts on it
    std::unique_ptr<SliceChannel> channel;  ///< far ranks only

   private:
    friend class OperationTable;
    bool is_kept_for = false;  // the operation is not under way here, and remembered because of this rank
  };

  struct Entry {
    std::shared_ptr<Operation> operation;  ///< while it is under way here
    std::map<RankId, Peer> peers;          ///< those that take part, as far as is known
    std::uint32_t num_unannounced = 0;     ///< partners
    std::uint32_t num_undone = 0;          ///< near partners
    bool is_over = false;
    std::uint64_t order = 0;  ///< of its issue
  };

  /// Of an operation that this rank issues.
  Entry& start(std::shared_ptr<Operation> operation);
  /// nullptr if it is not under way here.
  Entry* find(const Operation::Key& key);
  /// To be told what `from` says; nullptr if it speaks of more operations than it can have under way.
  Entry* hear(RankId from, const Operation::Key& key);
  /// After what hear() gave was told: forgets an operation of which nothing more is to come.
  void settle(const Operation::Key& key);
  /// The operation is over here, but its far partners may still grant what nobody needs. A partner that owes this for
  /// more operations than it can have under way is returned.
  std::optional<RankId> complete(const Operation::Key& key);

  /// Under way here, in the order of their issue.
  [[nodiscard]] std::vector<Entry*> live();
  [[nodiscard]] std::size_t size() const { return by_key_.size(); }

 private:
  struct HashKey {
    std::size_t operator()(const Operation::Key& key) const {
      return key.engine ^ (std::uint64_t{key.sequence} * 0x9e3779b97f4a7c15ull);
    }
  };

  /// False if too many are kept.
  bool keep_for(RankId rank, Peer& peer);
  void let_go(RankId rank, Peer& peer);

  std::unordered_map<Operation::Key, Entry, HashKey> by_key_;
  std::vector<std::int32_t> num_kept_for_;  // operations, by rank
  std::uint64_t num_started_ = 0;
};

}  // namespace shunt
