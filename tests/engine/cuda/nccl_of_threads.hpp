// NCCL's functions as ranks that are threads with a HostLane each would see them: transfers are matched by their order.
#pragma once

#include "transport/nccl/library.hpp"

namespace shunt::test {

/// A unique id names a communicator; ids of one process are all different.
const nccl::Library& nccl_of_threads();

}  // namespace shunt::test
