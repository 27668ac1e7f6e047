#include "engine/cuda/cluster/nccl_network.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>

#include "core/fail.hpp"
#include "engine/world_impl.hpp"

namespace shunt::device {

namespace {

/// What ranks tell each other before they join.
struct Card {
  nccl::UniqueId id{};
  std::uint64_t batch_bytes = 0;
  ErrorCode code{};
  std::array<char, 256> trouble{};  // why this rank can't join; empty: it can

  void refuse(const Error& error) {
    code = error.code();
    const std::string_view text = error.what();
    std::copy_n(text.begin(), std::min(text.size(), trouble.size() - 1), trouble.begin());
  }
};

Card read_card(RankId rank, std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Card))
    fail(ErrorCode::mismatch, "rank {} does not join by NCCL, or by another build", rank);
  Card card;
  std::memcpy(&card, bytes.data(), sizeof(card));
  card.trouble.back() = '\0';
  return card;
}

}  // namespace

std::shared_ptr<NcclNetwork> NcclNetwork::join(World& world, std::size_t batch_bytes, const Allocate& allocate,
                                               const Load& load) {
  Card mine{.batch_bytes = batch_bytes};
  const nccl::Library* library = nullptr;
  std::shared_ptr<std::byte> memory;
  try {
    library = &load();
    memory = allocate(memory_bytes(world.size(), batch_bytes));
    if (world.rank().value == 0 && library->GetUniqueId(&mine.id) != nccl::kSuccess)
      fail(ErrorCode::system, "NCCL: can't name a communicator");
  } catch (const Error& error) {
    mine.refuse(error);
  }
  const auto cards = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card theirs = read_card(RankId(rank), cards[rank]);
    if (theirs.trouble[0] != '\0') fail(theirs.code, "rank {} can't join by NCCL: {}", rank, theirs.trouble.data());
    if (theirs.batch_bytes != batch_bytes)
      fail(ErrorCode::mismatch, "ranks {} and {} send batches of {} and {} bytes through NCCL", world.rank(), rank,
           batch_bytes, theirs.batch_bytes);
    if (rank == 0) mine.id = theirs.id;
  }
  const Fabric& fabric = *world.impl()->fabric;
  const auto deadline = std::chrono::steady_clock::now() + fabric.environment().join;
  return std::make_shared<NcclNetwork>(
      *library, nccl::Communicator::Place{world.rank(), world.size(), mine.id}, std::move(memory), batch_bytes, [&] {
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
