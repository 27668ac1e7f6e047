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

/// In cuBLASLt's column-major terms: yᵀ [outputs, rows] = (wᵀ)ᵀ · xᵀ.
struct Matmul::Parts {
  const cublas_lt::Library& lt = cublas_lt::Library::load();
  cublas_lt::Handle handle = nullptr;
  cublas_lt::Product product = nullptr;
  cublas_lt::Layout w = nullptr, x = nullptr, y = nullptr;
  cublas_lt::Proposal found{};
  std::shared_ptr<std::byte> workspace;

  /// Delegates, so that the destructor runs if a later step throws.
  explicit Parts(const MatmulShape& shape) : Parts() {
    lt.check(lt.create(&handle), "begin");
    lt.check(lt.create_product(&product, cublas_lt::kFloat, CUDA_R_32F), "describe a product");
    const cublas_lt::Operation transposed = cublas_lt::kTransposed;
    set(product, cublas_lt::kOperationOnA, transposed);
    lay_out(w, shape, shape.inputs, shape.outputs, shape.inputs);
    lay_out(x, shape, shape.inputs, shape.rows, shape.x_stride);
    lay_out(y, shape, shape.outputs, shape.rows, shape.outputs);
    find_algorithm(static_cast<std::uint32_t>(shape.alignment));
    workspace = allocate(found.workspace_bytes);
  }
  ~Parts() {
    for (const cublas_lt::Layout each : {w, x, y})
      if (each) (void)lt.destroy_layout(each);
    if (product) (void)lt.destroy_product(product);
    if (handle) (void)lt.destroy(handle);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

 private:
  Parts() = default;

  template <class Value>
  void set(cublas_lt::Product of, cublas_lt::ProductAttribute attribute, Value value) const {
    lt.check(lt.set_of_product(of, attribute, &value, sizeof(value)), "describe a product");
  }
  template <class Value>
  void set(cublas_lt::Layout of, cublas_lt::LayoutAttribute attribute, Value value) const {
    lt.check(lt.set_of_layout(of, attribute, &value, sizeof(value)), "describe a matrix");
  }
  template <class Value>
  void set(cublas_lt::Preference of, cublas_lt::PreferenceAttribute attribute, Value value) const {
    lt.check(lt.set_of_preference(of, attribute, &value, sizeof(value)), "prefer an algorithm");
  }

  void lay_out(cublas_lt::Layout& made, const MatmulShape& shape, std::int64_t rows, std::int64_t columns,
               std::int64_t stride) const {
    lt.check(lt.create_layout(&made, type_of(shape.dtype), static_cast<std::uint64_t>(rows),
                              static_cast<std::uint64_t>(columns), stride),
             "describe a matrix");
    if (shape.batch > 0) {
      set(made, cublas_lt::kBatchCount, shape.batch);
      set(made, cublas_lt::kBatchMode, cublas_lt::kPointerArray);
    }
  }

  // cuBLASLt's first proposal is its best for batches of kTileRows (docs/performance.md).
  void find_algorithm(std::uint32_t alignment) {
    cublas_lt::Preference preference = nullptr;
    lt.check(lt.create_preference(&preference), "prefer an algorithm");
    const std::unique_ptr<cublas_lt::OpaquePreference, decltype(lt.destroy_preference)> owner(preference,
                                                                                              lt.destroy_preference);
    set(preference, cublas_lt::kMostWorkspaceBytes, kMostWorkspace);
    set(preference, cublas_lt::kReductionSchemes, cublas_lt::kNoReduction);
    set(preference, cublas_lt::kLeastAlignmentOfA, alignment);
    set(preference, cublas_lt::kLeastAlignmentOfB, alignment);
    set(preference, cublas_lt::kLeastAlignmentOfC, alignment);
    set(preference, cublas_lt::kLeastAlignmentOfD, alignment);
    int count = 0;
    lt.check(lt.propose(handle, product, w, x, y, y, preference, 1, &found, &count), "find an algorithm");
    if (count == 0) fail(ErrorCode::unsupported, "cuBLASLt has no algorithm for this product");
  }
};

void load_matmul() { (void)cublas_lt::Library::load(); }

Matmul::Matmul(const MatmulShape& shape) : parts_(std::make_shared<const Parts>(shape)) {}

void Matmul::run(const void* w, const void* x, void* y, cudaStream_t stream) const {
  const Parts& parts = *parts_;
  const float one = 1.0f;
  const float zero = 0.0f;
  parts.lt.check(
      parts.lt.multiply(parts.handle, parts.product, &one, w, parts.w, x, parts.x, &zero, y, parts.y, y, parts.y,
                        &parts.found.algorithm, parts.workspace.get(), parts.found.workspace_bytes, stream),
      "multiply");
}

}  // namespace shunt::device
