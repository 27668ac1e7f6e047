// From what a device recorded to the Error that the host throws.
#pragma once

#include <chrono>

#include "shunt/ids.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// Reads the record as the device may be writing it: returns unless it is complete.
void throw_if_faulty(const FaultRecord& record, RankId self, std::chrono::milliseconds deadline);

}  // namespace shunt::device
