#include "cli/hangup.hpp"

#include <signal.h>

namespace shunt::cli {
namespace {

struct sigaction inherited = {};

void note_hangup() { sigaction(SIGHUP, nullptr, &inherited); }

// Functions in this section run before those by which shared libraries set themselves up, UCX's among them.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = note_hangup;

}  // namespace

void restore_hangup() { sigaction(SIGHUP, &inherited, nullptr); }

}  // namespace shunt::cli
