#include "cli/device/gemm.hpp"

#include <cublasLt.h>

#include <map>
#include <random>

#include "cli/device/memory.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(ErrorCode::system, "cuBLASLt: can't {}: status {}", what, int{status});
}

/// Of magnitudes from 0.5 to 1, as zeros would need less power than data.
std::shared_ptr<std::uint16_t> random_matrix(std::size_t size) {
  std::vector<std::uint16_t> bits(size * size);
  std::minstd_rand random(1);
  for (auto& element : bits) element = static_cast<std::uint16_t>((random() & 0x807fu) | 0x3f00u);
  return upload(std::span<const std::uint16_t>(bits));
}

}  // namespace

struct Gemm::Impl {
  explicit Impl(std::int64_t num_rows)
      : size(num_rows),
        a(random_matrix(static_cast<std::size_t>(size))),
        b(random_matrix(static_cast<std::size_t>(size))),
        c(allocate_on_device(static_cast<std::size_t>(size * size) * sizeof(std::uint16_t))),
        workspace(allocate_on_device(kWorkspaceBytes)) {
    check(cublasLtCreate(&handle), "start");
    const auto rows = static_cast<std::uint64_t>(size);
    check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, rows, rows, size), "describe matrices");
  }
  ~Impl() {
    for (const auto& [sms, way] : ways) (void)cublasLtMatmulDescDestroy(way.product);
    (void)cublasLtMatrixLayoutDestroy(layout);
    (void)cublasLtDestroy(handle);
  }

  struct Way {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  const Way& way_for(std::int32_t sms) {
    const auto [entry, is_new] = ways.try_emplace(sms);
    Way& way = entry->second;
    if (!is_new) return way;
    check(cublasLtMatmulDescCreate(&way.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(way.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
          "describe a product");
    check(cublasLtMatmulDescSetAttribute(way.product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof(sms)),
          "limit a product to multiprocessors");
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "choose an algorithm");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                               sizeof(kWorkspaceBytes)),
          "choose an algorithm");
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, way.product, layout, layout, layout, layout,
                                                                 preference, 1, &best, &found);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    check(found > 0 ? status : CUBLAS_STATUS_NOT_SUPPORTED, "choose an algorithm");
    way.algorithm = best.algo;
    return way;
  }

  std::int64_t size;
  std::shared_ptr<std::uint16_t> a, b;
  std::shared_ptr<std::byte> c, workspace;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  std::map<std::int32_t, Way> ways;  // by the multiprocessors they are for
};

bool Gemm::is_available() { return true; }

Gemm::Gemm(std::int64_t size) : impl_(std::make_unique<Impl>(size)) {}
Gemm::~Gemm() = default;

void Gemm::launch(std::int32_t sms, cudaStream_t stream) {
  const Impl::Way& way = impl_->way_for(sms);
  const float one = 1;
  const float zero = 0;
  check(cublasLtMatmul(impl_->handle, way.product, &one, impl_->a.get(), impl_->layout, impl_->b.get(), impl_->layout,
                       &zero, impl_->c.get(), impl_->layout, impl_->c.get(), impl_->layout, &way.algorithm,
                       impl_->workspace.get(), kWorkspaceBytes, stream),
        "multiply");
}

}  // namespace shunt::cli
