// Any bytes are a table of measured times, or give one Error(invalid_argument).
#include <cstdint>
#include <string>

#include "graph/cost_table.hpp"
#include "shunt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)shunt::graph::CostTable::from_json("fuzz", std::string(reinterpret_cast<const char*>(data), size), "v100");
  } catch (const shunt::Error&) {
  }
  return 0;
}
