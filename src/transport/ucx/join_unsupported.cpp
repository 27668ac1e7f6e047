// For builds without UCX.
#include "core/fail.hpp"
#include "transport/ucx/join.hpp"

namespace shunt::ucx {

Joined join(const JoinOptions&) {
  fail(ErrorCode::unsupported, "ranks of several hosts need UCX, which this build has not; install it and build anew");
}

}  // namespace shunt::ucx
