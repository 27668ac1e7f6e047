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

/// Exchanged by ranks before they join.
struct Offer {
  nccl::UniqueId id{};
  std::uint64_t batch_bytes = 0;
  ErrorCode code{};
  std::array<char, 256> refusal{};  // why this rank can't join; empty if it can
};

}  // namespace

std::shared_ptr<NcclNetwork> NcclNetwork::join(World& world, Lane& lane) {
  Offer mine{.batch_bytes = lane.buffer_bytes()};
  const nccl::Library* library = nullptr;
  std::shared_ptr<std::byte> memory;
  try {
    library = &nccl::Library::load();
    memory = lane.allocate(2 * static_cast<std::size_t>(world.size()) * lane.buffer_bytes());
    if (world.rank().value == 0 && library->GetUniqueId(&mine.id) != nccl::kSuccess)
      fail(ErrorCode::system, "NCCL: can't name a communicator");
  } catch (const Error& error) {
    mine.code = error.code();
    const std::string_view text = error.what();
    std::copy_n(text.begin(), std::min(text.size(), mine.refusal.size() - 1), mine.refusal.begin());
  }
  const auto offers = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    Offer theirs;
    if (offers[rank].size() != sizeof(theirs))
      fail(ErrorCode::mismatch, "rank {} does not join by NCCL, or by another build", rank);
    std::memcpy(&theirs, offers[rank].data(), sizeof(theirs));
    theirs.refusal.back() = '\0';
    if (theirs.refusal[0] != '\0') fail(theirs.code, "rank {} can't join by NCCL: {}", rank, theirs.refusal.data());
    if (theirs.batch_bytes != mine.batch_bytes)
      fail(ErrorCode::mismatch, "ranks {} and {} send batches of {} and {} bytes through NCCL", world.rank(), rank,
           mine.batch_bytes, theirs.batch_bytes);
    if (rank == 0) mine.id = theirs.id;
  }
  const CommContext& comm = *world.impl()->comm;
  const auto deadline = std::chrono::steady_clock::now() + comm.environment().join;
  return std::make_shared<NcclNetwork>(*library, nccl::Communicator::Place{world.rank(), world.size(), mine.id},
                                       std::move(memory), lane.buffer_bytes(), [&] {
                                         if (const auto fault = comm.transport().fault())
                                           throw Error(fault->code, fault->text);
                                         if (std::chrono::steady_clock::now() > deadline)
                                           fail(ErrorCode::deadline, "NCCL: ranks did not join within {} ms",
                                                comm.environment().join.count());
                                       });
}

}  // namespace shunt::device
