// Any text is a model whose step can be built, or gives one Error(invalid_argument).
#include <cstdint>
#include <cstdlib>
#include <string>

#include "graph/model.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shunt::graph;
  try {
    const Model model = Model::from_json("fuzz", {reinterpret_cast<const char*>(data), size}, "a100");
    if (model.layers > 8) return 0;  // large models take too much time
    verify(build_training_step(model, 4));
  } catch (const shunt::Error& error) {
    if (error.code() != shunt::ErrorCode::invalid_argument) std::abort();
  }
  return 0;
}
