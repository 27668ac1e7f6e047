// The library's log: one line per event that is not an Error, such as a refused connection.
#pragma once

#include <functional>
#include <string_view>

#include "shunt/language.hpp"

namespace shunt {

/// A line has no trailing newline. Called by any thread, one call at a time. Must not call shunt; its exceptions are
/// discarded.
using LogSink = std::function<void(std::string_view line)>;

/// Sends all later lines of the process to the sink; null restores the default, stderr. Any thread.
void set_log_sink(LogSink sink);

}  // namespace shunt
