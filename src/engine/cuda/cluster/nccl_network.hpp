// An engine's communicator, which its operations use one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "shunt/world.hpp"
#include "transport/nccl/communicator.hpp"

namespace shunt::device {

/// NCCL matches what ranks send and receive by its order. Operations begin in any order; so they take turns in the
/// order in which they were called, which is the same on all ranks. Any thread.
class NcclNetwork : public std::enable_shared_from_this<NcclNetwork> {
 public:
  using Transfer = nccl::Communicator::Transfer;

  /// Collective. Throws Error(unsupported) where there is no NCCL, and Error(mismatch) unless all ranks' batches have
  /// the same size.
  static std::shared_ptr<NcclNetwork> join(World& world, std::size_t batch_bytes);

  NcclNetwork(const nccl::Library& library, const nccl::Communicator::Place& place,
              const std::function<void()>& may_wait)
      : communicator_(library, place, may_wait) {}

  /// An operation's; over when it is destroyed.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<NcclNetwork> network);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// All earlier ones are over.
    [[nodiscard]] bool has_come() const;
    /// As in nccl::Communicator.
    void exchange(std::span<const Transfer> sends, std::span<const Transfer> receives, cudaStream_t stream);
    [[nodiscard]] const std::shared_ptr<NcclNetwork>& network() const { return network_; }

   private:
    std::shared_ptr<NcclNetwork> network_;
    std::uint64_t number_;
  };

  [[nodiscard]] std::unique_ptr<Turn> take_turn() { return std::make_unique<Turn>(shared_from_this()); }

  // As in nccl::Communicator.
  [[nodiscard]] bool is_idle() const;
  void abort();

 private:
  mutable std::mutex mutex_;
  nccl::Communicator communicator_;
  std::set<std::uint64_t> turns_;  // that are not over
  std::uint64_t next_turn_ = 0;
};

}  // namespace shunt::device
