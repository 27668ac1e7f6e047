// Logging of events that are not Errors.
#pragma once

#include <fmt/format.h>

#include "shunt/log.hpp"

namespace shunt {

/// Passes the line to the sink.
void log_line(std::string_view line);

template <class... Args>
void log(fmt::format_string<Args...> text, Args&&... args) {
  log_line(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace shunt
