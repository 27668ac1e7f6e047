// Library::load() of builds without NCCL.
#include "core/fail.hpp"
#include "transport/nccl/library.hpp"

namespace shunt::nccl {

const Library& Library::load() {
  fail(ErrorCode::unsupported, "this build leaves NCCL out (SHUNT_NCCL=OFF); build anew, or use DeviceNetwork::world");
}

}  // namespace shunt::nccl
