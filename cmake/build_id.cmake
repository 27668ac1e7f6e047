# Run by the build: writes OUTPUT, which defines build_id(), from VERSION and the library's SOURCES (a file that lists them).
file(STRINGS ${SOURCES} files)
set(hashes "")
foreach(file IN LISTS files)
  file(SHA256 ${file} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "core/build.hpp"

std::string_view shunt::build_id() { return "@VERSION@-@hash@"; }
]] @ONLY)
