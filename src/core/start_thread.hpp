// Starts threads, with an Error that names the thread that could not be started.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/fail.hpp"

namespace shunt {

/// Throws Error(system) that names the purpose, such as "the progress thread of rank 3".
template <class Thread = std::thread, class Run>
Thread start_thread(const std::string& purpose, Run&& run) {
  try {
    return Thread(std::forward<Run>(run));
  } catch (const std::system_error& error) {
    fail(ErrorCode::system,
         "can't start {}: {}; threads are limited by `ulimit -u`, by a container's pids.max, and by address space "
         "(`ulimit -v`)",
         purpose, error.code().message());
  }
}

}  // namespace shunt
