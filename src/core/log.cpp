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

/// Never destroyed: threads may log while the process ends.
Log& the_log() {
  static Log& log = *new Log;
  return log;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(the_log().mutex);
  the_log().sink = std::move(sink);
}

void log_line(std::string_view line) {
  const std::lock_guard lock(the_log().mutex);
  if (the_log().sink)
    the_log().sink(line);
  else
    print_diagnostic("shunt: {}\n", line);
}

}  // namespace shunt
