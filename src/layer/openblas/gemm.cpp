#include "layer/gemm.hpp"

#include <cblas.h>
#include <fmt/format.h>

#include <mutex>
#include <sstream>

#include "core/fail.hpp"
#include "layer/one_thread.hpp"

namespace shunt {

struct Gemm::Impl {
  blasint inputs;
  blasint outputs;
};

std::string Gemm::library() {
  std::istringstream words(openblas_get_config());
  std::string name, version;
  words >> name >> version;
  return fmt::format("{} {}", name, version);
}

bool Gemm::has(DType dtype) { return dtype == f32; }

Gemm::Gemm(DType dtype, std::int64_t inputs, std::int64_t outputs) {
  SHUNT_CHECK(has(dtype));
  // OpenBLAS's number of threads is per process, not per caller; the system selects the loaded variant.
  if (openblas_get_parallel() != OPENBLAS_SEQUENTIAL) openblas_set_num_threads(1);
  impl_ = std::make_unique<Impl>(Impl{static_cast<blasint>(inputs), static_cast<blasint>(outputs)});
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const std::byte* x, const std::byte* w, std::byte* y, std::int64_t rows) {
  const OneThread one_thread;  // the OpenMP variant reads the caller's number at every call
  // The sequential variant shares buffers between threads, so ranks that are threads compute one after another.
  static std::mutex one_caller;
  std::unique_lock lock(one_caller, std::defer_lock);
  if (openblas_get_parallel() == OPENBLAS_SEQUENTIAL) lock.lock();
  const auto [inputs, outputs] = *impl_;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows), outputs, inputs, 1.0f,
              reinterpret_cast<const float*>(x), inputs, reinterpret_cast<const float*>(w), inputs, 0.0f,
              reinterpret_cast<float*>(y), outputs);
}

}  // namespace shunt
