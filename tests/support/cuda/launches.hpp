// What operations launch.
#pragma once

#include <functional>
#include <vector>

#include "shunt/stream.hpp"

namespace shunt::test {

/// The number of blocks of each kernel that `work` puts on the stream, in no order. Nothing is run.
std::vector<unsigned> blocks_of_kernels(Stream stream, const std::function<void()>& work);

}  // namespace shunt::test
