// ThreadSanitizer goes on after a race, and the exit status that tells of it would be lost where a rank's process ends
// by _exit. So it ends at the first one, and the launcher sees that.

extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
