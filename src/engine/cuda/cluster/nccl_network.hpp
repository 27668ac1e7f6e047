// An engine's NCCL communicator, used by one operation at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "engine/cuda/cluster/lane.hpp"
#include "shunt/world.hpp"
#include "transport/nccl/communicator.hpp"

namespace shunt::device {

/// NCCL matches sends and receives by their order, but operations begin in any order. So they take turns, in the order
/// of their calls, which is the same on all ranks. Thread-safe.
class NcclNetwork : public std::enable_shared_from_this<NcclNetwork> {
 public:
  using Transfer = nccl::Communicator::Transfer;

  /// Collective. If one rank can't join, all throw: Error(unsupported) without NCCL, Error(system) without device
  /// memory, Error(mismatch) if buffers differ in size.
  static std::shared_ptr<NcclNetwork> join(World& world, Lane& lane);

  /// `memory` holds two batches per rank.
  NcclNetwork(const nccl::Library& library, const nccl::Communicator::Place& place, std::shared_ptr<std::byte> memory,
              std::size_t batch_bytes, const std::function<void()>& may_wait)
      : memory_(std::move(memory)), batch_bytes_(batch_bytes), communicator_(library, place, may_wait) {}

  // Device memory for the operation whose turn it is: a batch to and a batch from each rank, used on one stream.
  [[nodiscard]] std::size_t batch_bytes() const { return batch_bytes_; }
  [[nodiscard]] std::byte* batch_to(RankId peer) const { return memory_.get() + 2 * peer.index() * batch_bytes_; }
  [[nodiscard]] std::byte* batch_from(RankId peer) const { return batch_to(peer) + batch_bytes_; }

  /// One operation's turn; it ends when destroyed.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<NcclNetwork> network) : network_(std::move(network)) {
      const std::lock_guard lock(network_->mutex_);
      number_ = network_->next_turn_++;
      network_->turns_.insert(number_);
    }
    ~Turn() {
      const std::lock_guard lock(network_->mutex_);
      network_->turns_.erase(number_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// True once all earlier turns have ended.
    [[nodiscard]] bool has_come() const {
      const std::lock_guard lock(network_->mutex_);
      return *network_->turns_.begin() == number_;
    }
    /// As in nccl::Communicator.
    void exchange(std::span<const Transfer> sends, std::span<const Transfer> receives, cudaStream_t stream) {
      const std::lock_guard lock(network_->mutex_);
      network_->communicator_.exchange(sends, receives, stream);
    }
    [[nodiscard]] const std::shared_ptr<NcclNetwork>& network() const { return network_; }

   private:
    std::shared_ptr<NcclNetwork> network_;
    std::uint64_t number_;
  };

  [[nodiscard]] std::unique_ptr<Turn> take_turn() { return std::make_unique<Turn>(shared_from_this()); }

  // As in nccl::Communicator.
  [[nodiscard]] bool is_idle() const {
    const std::lock_guard lock(mutex_);
    return communicator_.is_idle();
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    communicator_.abort();
  }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t batch_bytes_;
  mutable std::mutex mutex_;
  nccl::Communicator communicator_;
  std::set<std::uint64_t> turns_;  // not yet ended
  std::uint64_t next_turn_ = 0;
};

}  // namespace shunt::device
