#include "engine/cuda/cluster/nccl_network.hpp"

#include <chrono>
#include <cstring>

#include "core/fail.hpp"
#include "engine/world_impl.hpp"

namespace shunt::device {

std::shared_ptr<NcclNetwork> NcclNetwork::join(World& world, std::size_t batch_bytes) {
  struct Card {
    nccl::UniqueId id;
    std::uint64_t batch_bytes;
  };
  const nccl::Library& library = nccl::Library::load();
  Card mine{{}, batch_bytes};
  if (world.rank().value == 0 && library.GetUniqueId(&mine.id) != nccl::kSuccess)
    fail(ErrorCode::system, "NCCL: can't name a communicator");
  const auto cards = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    Card theirs;
    std::memcpy(&theirs, cards[rank].data(), sizeof(theirs));
    if (theirs.batch_bytes != batch_bytes)
      fail(ErrorCode::mismatch, "ranks {} and {} send batches of {} and {} bytes through NCCL", world.rank(), rank,
           batch_bytes, theirs.batch_bytes);
    if (rank == 0) mine.id = theirs.id;
  }
  const Fabric& fabric = *world.impl()->fabric;
  const auto deadline = std::chrono::steady_clock::now() + fabric.environment().join;
  return std::make_shared<NcclNetwork>(library, nccl::Communicator::Place{world.rank(), world.size(), mine.id}, [&] {
    if (const auto fault = fabric.transport().fault()) throw Error(fault->code, fault->text);
    if (std::chrono::steady_clock::now() > deadline)
      fail(ErrorCode::deadline, "NCCL: ranks did not join within {} ms", fabric.environment().join.count());
  });
}

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

bool NcclNetwork::is_idle() const {
  const std::lock_guard lock(mutex_);
  return communicator_.is_idle();
}

void NcclNetwork::abort() {
  const std::lock_guard lock(mutex_);
  communicator_.abort();
}

}  // namespace shunt::device
