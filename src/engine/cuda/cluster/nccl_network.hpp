// An engine's communicator, which its operations use one after the other.
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

/// NCCL matches what ranks send and receive by its order. Operations begin in any order; so they take turns in the
/// order in which they were called, which is the same on all ranks. Any thread.
class NcclNetwork : public std::enable_shared_from_this<NcclNetwork> {
 public:
  using Transfer = nccl::Communicator::Transfer;

  /// Collective. All ranks throw what one of them can't do: Error(unsupported) where there is no NCCL, Error(system)
  /// where there is no device memory, Error(mismatch) unless all ranks' buffers have the same size.
  static std::shared_ptr<NcclNetwork> join(World& world, Lane& lane);

  /// `memory` holds two batches per rank.
  NcclNetwork(const nccl::Library& library, const nccl::Communicator::Place& place, std::shared_ptr<std::byte> memory,
              std::size_t batch_bytes, const std::function<void()>& may_wait)
      : memory_(std::move(memory)), batch_bytes_(batch_bytes), communicator_(library, place, may_wait) {}

  // Device memory of the operation that has its turn: a batch to and a batch from every rank. What uses it is on one
  // stream.
  [[nodiscard]] std::size_t batch_bytes() const { return batch_bytes_; }
  [[nodiscard]] std::byte* batch_to(RankId peer) const { return memory_.get() + 2 * peer.index() * batch_bytes_; }
  [[nodiscard]] std::byte* batch_from(RankId peer) const { return batch_to(peer) + batch_bytes_; }

  /// One operation's; over when it is destroyed.
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

    /// All earlier ones are over.
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
  std::set<std::uint64_t> turns_;  // that are not over
  std::uint64_t next_turn_ = 0;
};

}  // namespace shunt::device
