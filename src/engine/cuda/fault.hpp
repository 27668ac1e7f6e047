// From what a device recorded to the Error that the host throws.
#pragma once

#include <chrono>
#include <string_view>

#include "engine/cuda/watchdog.hpp"
#include "shunt/ids.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// Reads the cause as the device may be writing it; the rest of the record is complete unless it is `none`.
FaultRecord::Cause cause_of(const FaultRecord& record);

/// Reads the record as the device may be writing it: returns unless it is complete. The watch knows why ranks are lost.
void throw_if_faulty(const FaultRecord& record, const Watchdog::Watch& watch, RankId self,
                     std::chrono::milliseconds deadline, std::string_view engine_name);

}  // namespace shunt::device
