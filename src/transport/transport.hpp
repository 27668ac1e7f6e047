// The contract between the engine and a transport, in three capabilities: *memory* (near peers address each other's
// blocks), *message* (small records with back-pressure) and *slice* (runs of bytes to far peers), plus waiting and
// faults.
//
// One Transport object is one rank's end. `inproc` and `shm` share the protocol in local/; hybrid/ adds far ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"
#include "transport/slice_link.hpp"

namespace shunt {

/// Memory that peers can address; freed with the last copy of `owner`. Aligned to a page.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner;
};

/// What a rank may hold from the machine besides live blocks: freed blocks kept warm and control structures.
inline constexpr std::size_t kReserveBytes = std::size_t{64} << 20;

/// Back-pressure is not an error: `again` means that the peer has not yet consumed earlier messages.
enum class Post { posted, again };

inline constexpr std::size_t kMaxMessageBytes = 56;

struct Message {
  RankId from;
  std::size_t bytes = 0;
  alignas(8) std::array<std::byte, kMaxMessageBytes> data{};
};

/// Why a world is poisoned. The first fault wins; every rank of a machine reads the same one.
struct Fault {
  ErrorCode code;
  RankId culprit;
  RankId reporter;  ///< on this machine: the first to report it, by itself or after a far rank
  std::string text;
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual RankId rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;

  /// Ranks of one machine are near: they address each other's memory. Equal on all ranks.
  [[nodiscard]] virtual HostId host(RankId rank) const = 0;
  /// The interface by which a rank reaches far peers. Equal on all ranks.
  [[nodiscard]] virtual NicId nic(RankId rank) const = 0;
  /// How to reach far peers; none where all are near.
  [[nodiscard]] virtual SliceLink* slices() = 0;

  // Memory. Any thread.

  /// Throws Error(system) when the machine has no more memory.
  virtual Block allocate(std::size_t bytes) = 0;
  /// The offset of [data, data + bytes) for peers; none if that is not memory of allocate().
  [[nodiscard]] virtual std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const = 0;
  /// A near peer's block in this rank's address space. The offset comes from a peer and is checked: throws
  /// PeerError.
  [[nodiscard]] virtual std::byte* peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const = 0;
  /// Memory that this rank holds from the machine: live blocks, freed blocks kept warm, and control structures.
  [[nodiscard]] virtual std::size_t committed_bytes() const = 0;
  [[nodiscard]] virtual std::size_t live_bytes() const = 0;
  /// Gives freed memory beyond a small reserve back to the machine; true if there was any to give.
  virtual bool trim() = 0;

  // Messages. Between two ranks they arrive in order. One thread at a time may post, and one may poll.

  /// At most kMaxMessageBytes. What this thread wrote before, into peers' blocks too, is visible to a rank that has
  /// polled the message. Never blocks.
  virtual Post post(RankId peer, std::span<const std::byte> message) = 0;
  /// False when nothing has arrived.
  virtual bool poll(Message& message) = 0;

  // Waiting. Any thread.

  /// Changes whenever something may have happened for this rank: a message, a fault, a wake-up.
  [[nodiscard]] virtual std::uint32_t observe() const = 0;
  /// Returns once observe() differs from `seen`, after the time limit, or, rarely, early. Spins briefly, then sleeps.
  virtual void sleep(std::uint32_t seen, std::chrono::microseconds limit) = 0;
  /// Ends every sleep() of this rank.
  virtual void wake() = 0;

  // Faults. Any thread.

  /// Poisons the world for all ranks, unless it is already. A later report is ignored.
  virtual void report(ErrorCode code, RankId culprit, const std::string& text) = 0;
  [[nodiscard]] virtual std::optional<Fault> fault() const = 0;
  /// Call it repeatedly while waiting for `peer`: pings it, and reports it lost when it has not answered for the
  /// liveness limit.
  virtual void suspect(RankId peer) = 0;
  /// True once the peer has left in good order and will send nothing more.
  [[nodiscard]] virtual bool has_left(RankId peer) const = 0;
  /// True once nothing can come from the peer any more: it has left, its process has ended, its connection is broken,
  /// or it has not answered suspect() for the liveness limit. Also after a fault.
  [[nodiscard]] virtual bool is_gone(RankId peer) const = 0;
  /// Signals the peers that this rank needs nothing more. Blocks stay valid. Idempotent.
  virtual void leave() = 0;
};

}  // namespace shunt
