// What the library has to say that is no Error: one line each, such as a connection that it refuses.
#pragma once

#include <functional>
#include <string_view>

#include "shunt/language.hpp"

namespace shunt {

/// Lines end without a newline. Called by any thread, one call at a time; must not call shunt; what it throws is
/// dropped.
using LogSink = std::function<void(std::string_view line)>;

/// Where lines go from now on, for the whole process; none: to stderr, as at first. Any thread.
void set_log_sink(LogSink sink);

}  // namespace shunt
