// For builds without UCX.
#include "core/fail.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::ucx {

bool is_built_in() { return false; }

std::unique_ptr<far::Carrier> make_carrier(const WorkerOptions&) {
  fail(ErrorCode::unsupported, "this build has no UCX; install it and build anew, or set SHUNT_NETWORK=tcp");
}

}  // namespace shunt::ucx
