#include "cli/device/measure.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

ShuffleResult measure_on_device(World&, const ShuffleConfig&) {
  prepare_device();
  return {};
}

void prepare_device() { fail(ErrorCode::unsupported, "--device cuda: this build has no CUDA (SHUNT_CUDA)"); }

}  // namespace shunt::cli
