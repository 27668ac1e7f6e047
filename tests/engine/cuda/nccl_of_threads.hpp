// NCCL's functions as ranks that are threads with a HostLane each would see them: transfers are matched by their order.
#pragma once

#include <cstdint>

#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "transport/nccl/library.hpp"

namespace shunt::test {

const nccl::Library& nccl_of_threads();

/// What goes wrong, on one rank.
enum class NcclTrouble : std::uint8_t {
  none,
  refused_send,   ///< Send returns an error
  refused_group,  ///< GroupEnd returns an error
  lost_group,     ///< what a group has launched never ends, and an error is to be had some polls later
};

struct NcclOfThreadsId {
  std::uint64_t number = 0;  ///< of the communicator; different from all others of the process
  NcclTrouble trouble = NcclTrouble::none;
  std::int32_t troubled_rank = -1;

  [[nodiscard]] nccl::UniqueId pack() const;
};

/// For a rank's lane. Collective only in that all ranks do the same.
std::shared_ptr<device::NcclNetwork> make_nccl_of_threads(const World& world, device::Lane& lane,
                                                          const NcclOfThreadsId& id);

/// That ranks of the process have launched so far.
std::uint64_t num_nccl_groups();

/// Of the calling thread: begun and not ended.
int num_open_nccl_groups();

}  // namespace shunt::test
