#include "kernels/cuda/mlp/matmul.hpp"

#include "core/cuda/memory.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/mlp/cublas_lt.hpp"

namespace shunt::device {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::fp8_e4m3: break;
  }
  fail(ErrorCode::unsupported, "no product of fp8 rows");
}

}  // namespace

/// In cuBLASLt's words, whose matrices are column after column: yᵀ [outputs, rows] = (wᵀ)ᵀ · xᵀ.
struct Matmul::Parts {
  const CublasLt& lt = CublasLt::get();
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulHeuristicResult_t found{};
  std::shared_ptr<std::byte> workspace;

  explicit Parts(const MatmulShape& shape) {
    lt.check(lt.create(&handle), "begin");
    lt.check(lt.create_product(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(product, CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    w = layout(shape, shape.inputs, shape.outputs, shape.inputs);
    x = layout(shape, shape.inputs, shape.rows, shape.x_stride);
    y = layout(shape, shape.outputs, shape.rows, shape.outputs);
    find_algorithm(static_cast<std::uint32_t>(shape.alignment));
    workspace = allocate(found.workspaceSize);
  }
  ~Parts() {
    for (const cublasLtMatrixLayout_t each : {w, x, y}) (void)lt.destroy_layout(each);
    (void)lt.destroy_product(product);
    (void)lt.destroy(handle);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

 private:
  template <class Value>
  void set(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute, Value value) const {
    lt.check(lt.set_of_product(of, attribute, &value, sizeof(value)), "describe a product");
  }
  template <class Value>
  void set(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t attribute, Value value) const {
    lt.check(lt.set_of_layout(of, attribute, &value, sizeof(value)), "describe a matrix");
  }
  template <class Value>
  void set(cublasLtMatmulPreference_t of, cublasLtMatmulPreferenceAttributes_t attribute, Value value) const {
    lt.check(lt.set_of_preference(of, attribute, &value, sizeof(value)), "prefer an algorithm");
  }

  [[nodiscard]] cublasLtMatrixLayout_t layout(const MatmulShape& shape, std::int64_t rows, std::int64_t columns,
                                              std::int64_t stride) const {
    cublasLtMatrixLayout_t made = nullptr;
    lt.check(lt.create_layout(&made, type_of(shape.dtype), static_cast<std::uint64_t>(rows),
                              static_cast<std::uint64_t>(columns), stride),
             "describe a matrix");
    if (shape.batch > 0) {
      set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, shape.batch);
      set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, static_cast<std::uint32_t>(CUBLASLT_BATCH_MODE_POINTER_ARRAY));
    }
    return made;
  }

  // Its first proposal is its best for batches of kTileRows (docs/performance.md).
  void find_algorithm(std::uint32_t alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    lt.check(lt.create_preference(&preference), "prefer an algorithm");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(lt.destroy_preference)> owner(
        preference, lt.destroy_preference);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    int count = 0;
    lt.check(lt.find_algorithm(handle, product, w, x, y, y, preference, 1, &found, &count), "find an algorithm");
    if (count == 0) fail(ErrorCode::unsupported, "cuBLASLt has no algorithm for this product");
  }
};

void load_matmul() { (void)CublasLt::get(); }

Matmul::Matmul(const MatmulShape& shape) : parts_(std::make_shared<const Parts>(shape)) {}

void Matmul::run(const void* w, const void* x, void* y, cudaStream_t stream) const {
  const Parts& parts = *parts_;
  const float one = 1.0f;
  const float zero = 0.0f;
  parts.lt.check(parts.lt.matmul(parts.handle, parts.product, &one, w, parts.w, x, parts.x, &zero, y, parts.y, y,
                                 parts.y, &parts.found.algo, parts.workspace.get(), parts.found.workspaceSize, stream),
                 "multiply");
}

}  // namespace shunt::device
