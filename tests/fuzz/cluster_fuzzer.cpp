// Any text is a cluster on which a step can be simulated, or gives one Error(invalid_argument).
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "graph/model.hpp"
#include "graph/simulate.hpp"
#include "shunt/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shunt::graph;
  static const Graph graph = build_training_step(Model::load("tiny", "none"), 4);
  try {
    const shunt::Cluster cluster = shunt::Cluster::from_json("fuzz", {reinterpret_cast<const char*>(data), size});
    const double step = simulate(make_program(graph, CostModel(cluster)), cluster).step_s;
    if (!(std::isfinite(step) && step >= 0)) std::abort();
  } catch (const shunt::Error& error) {
    if (error.code() != shunt::ErrorCode::invalid_argument) std::abort();
  }
  return 0;
}
