// Any text is a graph that prints and parses back to itself, or gives one Error(invalid_argument).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/text.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shunt::graph;
  try {
    const Graph graph = parse({reinterpret_cast<const char*>(data), size});
    verify(graph);
    const std::string text = print(graph);
    if (print(parse(text)) != text) std::abort();
  } catch (const shunt::Error& error) {
    if (error.code() != shunt::ErrorCode::invalid_argument) std::abort();
  }
  return 0;
}
