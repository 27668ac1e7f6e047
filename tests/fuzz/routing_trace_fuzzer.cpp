// Any bytes are a trace that can be read completely, or give one Error(invalid_argument); also with corrected
// checksums, without which hardly any input would get past the header.
#include <cstdint>
#include <cstdlib>

#include "shunt/error.hpp"
#include "support/memory_file.hpp"
#include "support/trace_bytes.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shunt::test;
  static const MemoryFile file;
  const auto read = [](const TraceBytes& bytes) {
    file.write(bytes);
    try {
      read_all(file.path());
    } catch (const shunt::Error& error) {
      if (error.code() != shunt::ErrorCode::invalid_argument) std::abort();
    }
  };
  TraceBytes bytes(data, data + size);
  read(bytes);
  mend_checksums(bytes);
  read(bytes);
  return 0;
}
