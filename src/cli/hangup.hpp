// SIGHUP as this process was started with it.
#pragma once

namespace shunt::cli {

/// UCX's library takes SIGHUP as a request to print its state, from when it is loaded. This gives it back: it ends the
/// process, or, under nohup, does nothing. To be called first in main.
void restore_hangup();

}  // namespace shunt::cli
