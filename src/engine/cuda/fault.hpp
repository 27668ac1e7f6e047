// From the device's fault record to the Error that the host throws.
#pragma once

#include <chrono>
#include <string_view>

#include "engine/cuda/watchdog.hpp"
#include "shunt/ids.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// Reads the cause while the device may write the record; the rest is complete unless the cause is `none`.
FaultRecord::Cause cause_of(const FaultRecord& record);

/// Throws the Error of a complete record; returns if there is none. The watch gives the reason why a rank is lost.
void throw_if_faulty(const FaultRecord& record, const Watchdog::Watch& watch, RankId self,
                     std::chrono::milliseconds deadline, std::string_view engine_name);

}  // namespace shunt::device
