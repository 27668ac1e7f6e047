#include "cli/device/measure.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

ShuffleResult measure_on_device(World&, const ShuffleConfig& config) {
  prepare_device(config);
  return {};
}

void prepare_device(const ShuffleConfig&) {
  fail(ErrorCode::unsupported, "--device cuda: this build has no CUDA (SHUNT_CUDA)");
}

}  // namespace shunt::cli
