#include "core/log.hpp"

#include <mutex>
#include <utility>

#include "core/diagnostic.hpp"

namespace shunt {
namespace {

struct Log {
  std::mutex mutex;  // guards the sink, and its calls
  LogSink sink;
};

/// Never destroyed, because threads may log while the process exits.
Log& global_log() {
  static Log& log = *new Log;
  return log;
}

}  // namespace

// The previous sink is destroyed after the lock is released: it may take locks of its own.
void set_log_sink(LogSink sink) {
  const std::lock_guard lock(global_log().mutex);
  std::swap(global_log().sink, sink);
}

void log_line(std::string_view line) {
  const std::lock_guard lock(global_log().mutex);
  if (!global_log().sink) return print_diagnostic("shunt: {}\n", line);
  try {
    global_log().sink(line);
  } catch (...) {
    // A line that can't be written is not a reason to fail.
  }
}

}  // namespace shunt
