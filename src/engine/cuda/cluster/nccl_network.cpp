#include "engine/cuda/cluster/nccl_network.hpp"

namespace shunt::device {

NcclNetwork::Turn::Turn(std::shared_ptr<NcclNetwork> network) : network_(std::move(network)) {
  const std::lock_guard lock(network_->mutex_);
  number_ = network_->next_turn_++;
  network_->turns_.insert(number_);
}

NcclNetwork::Turn::~Turn() {
  const std::lock_guard lock(network_->mutex_);
  network_->turns_.erase(number_);
}

bool NcclNetwork::Turn::has_come() const {
  const std::lock_guard lock(network_->mutex_);
  return *network_->turns_.begin() == number_;
}

void NcclNetwork::Turn::exchange(std::span<const Transfer> sends, std::span<const Transfer> receives,
                                 cudaStream_t stream) {
  const std::lock_guard lock(network_->mutex_);
  network_->communicator_.exchange(sends, receives, stream);
}

bool NcclNetwork::Turn::is_idle() const {
  const std::lock_guard lock(network_->mutex_);
  return network_->communicator_.is_idle();
}

void NcclNetwork::abort() {
  const std::lock_guard lock(mutex_);
  communicator_.abort();
}

}  // namespace shunt::device
