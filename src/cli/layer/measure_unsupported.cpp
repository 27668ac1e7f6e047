#include "cli/layer/measure.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

LayerResult measure_layer(World&, const LayerConfig& config) {
  prepare_layer(config);
  return {};
}

void prepare_layer(const LayerConfig&) {
  fail(ErrorCode::unsupported, "bench layer: this build has no CUDA (SHUNT_CUDA)");
}

}  // namespace shunt::cli
