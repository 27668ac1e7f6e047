#include "cli/device/gemm.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

struct Gemm::Impl {};

bool Gemm::is_available() { return false; }

Gemm::Gemm(std::int64_t) { fail(ErrorCode::unsupported, "this build has no cuBLASLt"); }
Gemm::~Gemm() = default;
void Gemm::launch(std::int32_t, cudaStream_t) {}

}  // namespace shunt::cli
