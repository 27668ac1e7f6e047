// One collective operation, from its issue to its completion on this rank.
//
// Every operation goes through the same phases (Phase). Near ranks announce the operation to each other. Once all have,
// this rank does its share: it reads or writes its peers' announced memory and exchanges slices with far ranks
// (slice_channel.hpp), to which its first grant is the announcement. Then it signals `done` to its near peers, and it
// is complete once all of them have.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/wiring.hpp"
#include "engine/op_kind.hpp"
#include "engine/slice_channel.hpp"
#include "shunt/error.hpp"
#include "shunt/ids.hpp"

namespace shunt {

/// The members of a world, as ranks of the transport.
struct Group {
  std::vector<RankId> members;  ///< by rank in this world
  Wiring wiring;                ///< by rank in this world
  RankId self;                  ///< in this world
  std::uint64_t id = 0;         ///< equal on all members, different for other worlds

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(members.size()); }
  [[nodiscard]] RankId member(RankId rank) const { return members[rank.index()]; }
  [[nodiscard]] bool is_near(RankId rank) const { return wiring.are_near(rank, self); }
  [[nodiscard]] bool has_far() const { return !wiring.is_one_host(); }
  /// Members on this rank's machine, itself included.
  [[nodiscard]] std::size_t num_near() const;
  /// The rank in this world of a rank of the transport; an invalid id if it is no member.
  [[nodiscard]] RankId rank_of(RankId member) const;
  /// Calls visit(rank) for each near member but this one.
  template <class Visit>
  void for_near_peers(const Visit& visit) const {
    for (std::size_t rank = 0; rank < members.size(); ++rank)
      if (RankId(rank) != self && is_near(RankId(rank))) visit(RankId(rank));
  }
};

/// The result of Operation::work(): what it did, and when to call it again.
enum class Work : std::uint8_t {
  needs_peer,  ///< nothing moved; a peer must act first
  idle,        ///< nothing moved; call again whenever the transport wakes
  soon,        ///< nothing moved, and no wake-up will come: call again within a millisecond
  moved,
  finished
};

/// What a rank publishes to its peers when it issues an operation.
struct Announcement {
  OpKind kind = OpKind::plan;
  std::uint64_t plan_hash = 0;
  std::uint64_t offset = 0;         ///< the block that peers read or write
  std::uint64_t bytes = 0;          ///< its size
  std::uint64_t second_offset = 0;  ///< combine_backward: expert outputs that peers read; dispatch on devices: scales
};

class Operation {
 public:
  /// Operations of different ranks match by engine and by their place in the engine's order.
  struct Key {
    std::uint64_t engine = 0;
    std::uint32_t sequence = 0;
    bool operator==(const Key&) const = default;
  };

  enum class Phase : std::uint8_t {
    issued,     ///< this rank's memory is not ready; not yet announced
    announced,  ///< waits for its near peers to announce it
    moving,     ///< this rank does its share
    draining,   ///< this rank's share is done; peers may still use this rank's memory
    complete,
    failed
  };

  /// `engine_name` appears in errors; it may be empty.
  Operation(std::shared_ptr<const Group> group, std::uint64_t engine, const Announcement& announcement,
            std::chrono::milliseconds deadline, std::string_view engine_name = {});
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// False while this rank's memory is not ready for its peers: the operation is not announced yet, and no deadline
  /// runs. The code that makes it ready wakes the transport. First called by the issuing thread, while another thread
  /// may drive other operations; if it throws there, the operation was not issued.
  [[nodiscard]] virtual bool is_ready() { return true; }
  /// Far ranks of this world with which it exchanges slices, or whose announcement it needs.
  [[nodiscard]] virtual std::vector<RankId> far_partners() const { return {}; }
  /// Called once all near members have announced themselves. `peers` holds their announcements by rank, this rank's own
  /// included; those of far members are empty.
  virtual void begin(std::span<const Announcement> peers) = 0;
  /// Does a part of this rank's share; called again until it returns Work::finished.
  virtual Work work() { return Work::finished; }
  /// Called once all near peers are done with this rank's memory, until it returns true.
  virtual bool finish() { return true; }
  /// Called when a fault ends the operation, before its error is visible: must end everything that waits for a peer.
  virtual void give_up() noexcept {}
  /// Called by the thread that waits for the operation, after give_up() and before the Error is thrown: afterwards the
  /// caller's tensors are not in use. May block; may be called again.
  virtual void release_after_fault() noexcept {}

  /// Far ranks without whose slices or grants it can't finish its share.
  [[nodiscard]] std::vector<RankId> awaited_far() const;

  /// The name and number that errors use.
  [[nodiscard]] std::string title() const;
  [[nodiscard]] const Group& group() const { return *group_; }
  [[nodiscard]] const Key& key() const { return key_; }
  [[nodiscard]] const Announcement& announcement() const { return announcement_; }
  // Acquire: partner of the release in Progress::complete(); covers the output.
  [[nodiscard]] Phase phase() const { return phase_.load(std::memory_order_acquire); }
  [[nodiscard]] bool done() const { return phase() >= Phase::complete; }
  /// The error that ended a failed operation; call once done().
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  /// Throws it, if there is one.
  void rethrow() const;

 protected:
  /// The channel to a far partner, from begin() on.
  [[nodiscard]] SliceChannel& channel(RankId peer) const;
  /// What work() returns while only peers and the link can make it go on.
  [[nodiscard]] Work progress_of(bool moved) const {
    return moved ? Work::moved : far_ && far_->link_was_full ? Work::idle : Work::needs_peer;
  }

 private:
  friend class Progress;

  std::shared_ptr<const Group> group_;
  Key key_;
  Announcement announcement_;
  std::chrono::milliseconds deadline_;
  std::string engine_name_;
  std::chrono::steady_clock::time_point announced_at_;
  std::unique_ptr<SliceChannel::Shared> far_;  // from begin() on, if there are far partners
  std::vector<SliceChannel*> channels_;        // to far partners, by rank
  bool is_queued_ = false;                     // for a step
  std::optional<Error> error_;
  std::atomic<Phase> phase_{Phase::issued};
};

}  // namespace shunt
