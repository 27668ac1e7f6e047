#include "layer/gemm.hpp"

#include "core/fail.hpp"

namespace shunt {

struct Gemm::Impl {};

std::string Gemm::library() { return ""; }
bool Gemm::has(DType) { return false; }

namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::unsupported,
       "this build computes no products on the CPU: neither oneDNN (SHUNT_ONEDNN) nor OpenBLAS");
}

}  // namespace

Gemm::Gemm(DType, std::int64_t, std::int64_t) { refuse(); }
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const std::byte*, const std::byte*, std::byte*, std::int64_t) {}
void run(const Sgemm&) { refuse(); }

}  // namespace shunt
