#include "kernels/cuda/mlp/cublas_lt.hpp"

#include <dlfcn.h>

#include "core/fail.hpp"

namespace shunt::device {
namespace {

CublasLt load() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: kernels may be under way at exit
  if (!library) fail(ErrorCode::unsupported, "cuBLASLt can't be loaded ({}); is it on LD_LIBRARY_PATH?", dlerror());
  const auto find = [&]<class Function>(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (!function) fail(ErrorCode::unsupported, "{} has no {}", name, symbol);
  };
  CublasLt lt{};
  find(lt.create, "cublasLtCreate");
  find(lt.destroy, "cublasLtDestroy");
  find(lt.status_string, "cublasLtGetStatusString");
  find(lt.matmul, "cublasLtMatmul");
  find(lt.find_algorithm, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.create_product, "cublasLtMatmulDescCreate");
  find(lt.destroy_product, "cublasLtMatmulDescDestroy");
  find(lt.set_of_product, "cublasLtMatmulDescSetAttribute");
  find(lt.create_layout, "cublasLtMatrixLayoutCreate");
  find(lt.destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(lt.set_of_layout, "cublasLtMatrixLayoutSetAttribute");
  find(lt.create_preference, "cublasLtMatmulPreferenceCreate");
  find(lt.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(lt.set_of_preference, "cublasLtMatmulPreferenceSetAttribute");
  return lt;
}

}  // namespace

const CublasLt& CublasLt::get() {
  static const CublasLt lt = load();
  return lt;
}

void CublasLt::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_NOT_SUPPORTED ? ErrorCode::unsupported : ErrorCode::system, "cuBLASLt: can't {}: {}",
       what, status_string(status));
}

}  // namespace shunt::device
