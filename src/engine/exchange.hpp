// All-gathers and exchanges of bytes among the ranks of a world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
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

/// Operations of this rank that follow each other: when one is complete, the thread that drives issues the next, so
/// they proceed without calls. Any thread may wait, one at a time.
class Chain {
 public:
  explicit Chain(CommContext& comm) : comm_(comm) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// Throws the world's fault if it is poisoned; the chain then goes on or ends as if this had not been called.
  void issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence);
  /// Calls start() and waits for the end, without a wake-up of the server thread.
  template <class Start>
  void run(const Start& start) {
    const Progress::Waiter waiter(comm_.progress());
    start();
    wait();
  }
  /// Nothing follows.
  void end(std::exception_ptr error = nullptr);

  /// True if wait() would return or throw at once.
  [[nodiscard]] bool done() const;
  /// Drives until the end. Throws its error, or that of an operation that failed.
  void wait();

 private:
  CommContext& comm_;
  mutable std::mutex mutex_;
  std::shared_ptr<Operation> current_;  // null before the first and after the end
  std::exception_ptr error_;
  bool has_ended_ = false;
};

/// Collective: an all-gather. `kind` is the public call that needs it; it must match on all ranks. Returns at once;
/// `then` is called after `read`, by the thread that drives, and must not throw.
void start_exchange(const ExchangePlace& place, Chain& chain, OpKind kind, std::span<const std::byte> mine,
                    const ForFar& for_far, ReadAll read, std::function<void()> then);
/// Operations that an exchange issues, which is the number of places it takes in the order.
[[nodiscard]] inline std::uint32_t num_operations_of_exchange(const Group& group) { return group.has_far() ? 2 : 1; }

/// Collective, blocking: the same; returns copies of all members' bytes, by rank.
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

/// Collective: every rank sends to some far ranks, and names those that send to it. `plan_hash` must be equal on all.
/// Returns at once; `then` receives the bytes of `senders`, in their order, as in start_exchange().
void start_far_swap(const ExchangePlace& place, Chain& chain, OpKind kind, std::uint64_t plan_hash,
                    std::vector<FarBytes> outgoing, std::span<const FarSender> senders,
                    std::function<void(std::vector<FarBytes>)> then);

}  // namespace shunt
