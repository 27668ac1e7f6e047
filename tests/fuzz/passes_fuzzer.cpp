// Every pass returns a legal graph for any legal graph.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/passes/pass.hpp"
#include "graph/text.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"

namespace {

constexpr std::size_t kMostOps = 200;  // large graphs take too much time

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shunt::graph;
  static const CostModel cost(shunt::Cluster::load("v100x16"));
  Graph graph("none", 1);
  try {
    graph = parse({reinterpret_cast<const char*>(data), size});
    verify(graph);
  } catch (const shunt::Error&) {
    return 0;
  }
  if (graph.ops().size() > kMostOps) return 0;
  PassContext context{.cost = cost, .interleaves_micro_batches = true, .dw_seconds = 0.001, .notes = {}};
  std::vector<PassReport> reports;
  run_passes(
      graph, context, [](std::string_view) { return true; }, reports);
  return 0;
}
