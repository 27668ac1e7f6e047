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

namespace {

/// Calls product() so that it computes on this thread only.
template <class Product>
void on_this_thread(const Product& product) {
  // OpenBLAS's number of threads is per process, not per caller; the system selects the loaded variant.
  static const bool is_sequential = [] {
    const bool sequential = openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
    if (!sequential) openblas_set_num_threads(1);
    return sequential;
  }();
  const OneThread one_thread;  // the OpenMP variant reads the caller's number at every call
  // The sequential variant shares buffers between threads, so ranks that are threads compute one after another.
  static std::mutex one_caller;
  std::unique_lock lock(one_caller, std::defer_lock);
  if (is_sequential) lock.lock();
  product();
}

}  // namespace

Gemm::Gemm(DType dtype, std::int64_t inputs, std::int64_t outputs) {
  SHUNT_CHECK(has(dtype));
  impl_ = std::make_unique<Impl>(Impl{static_cast<blasint>(inputs), static_cast<blasint>(outputs)});
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const std::byte* x, const std::byte* w, std::byte* y, std::int64_t rows) {
  const auto [inputs, outputs] = *impl_;
  on_this_thread([&, inputs = inputs, outputs = outputs] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows), outputs, inputs, 1.0f,
                reinterpret_cast<const float*>(x), inputs, reinterpret_cast<const float*>(w), inputs, 0.0f,
                reinterpret_cast<float*>(y), outputs);
  });
}

void run(const Sgemm& product) {
  const auto flag = [](bool is_transposed) { return is_transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
  on_this_thread([&] {
    cblas_sgemm(CblasRowMajor, flag(product.transposed_a), flag(product.transposed_b), size(product.rows),
                size(product.cols), size(product.inner), 1.0f, product.a, size(product.leading_a), product.b,
                size(product.leading_b), product.adds ? 1.0f : 0.0f, product.c, size(product.leading_c));
  });
}

}  // namespace shunt
