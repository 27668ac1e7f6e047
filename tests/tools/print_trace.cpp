// Prints the contents of a routing trace as JSON. Usage: print_trace FILE
#include <iostream>
#include <nlohmann/json.hpp>

#include "shunt/error.hpp"
#include "support/trace_tokens.hpp"

int main(int count, char** arguments) {
  using nlohmann::json;
  using namespace shunt;
  if (count != 2) return 2;
  try {
    const RoutingTrace trace = RoutingTrace::open(arguments[1]);
    const TraceShape& shape = trace.shape();
    json layers = json::array();
    for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
      const auto tokens = test::TraceTokens::of_layer(trace.layer(layer), shape, 1000);
      layers.push_back({{"experts", tokens.experts}, {"weights", tokens.weights}, {"scores", tokens.scores}});
    }
    std::cout << json{{"experts", shape.experts}, {"topk", shape.topk}, {"layers", layers}};
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
