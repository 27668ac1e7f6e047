#include "kernels/cuda/mlp/cublas_lt.hpp"

#include <dlfcn.h>

#include "core/fail.hpp"

namespace shunt::cublas_lt {
namespace {

Library load_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUDART_VERSION / 1000);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: kernels may be running at exit
  if (!library) fail(ErrorCode::unsupported, "cuBLASLt can't be loaded ({}); is it on LD_LIBRARY_PATH?", dlerror());
  const auto find = [&]<class Function>(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (!function) fail(ErrorCode::unsupported, "{} has no {}", name, symbol);
  };
  Library lt{};
  find(lt.create, "cublasLtCreate");
  find(lt.destroy, "cublasLtDestroy");
  find(lt.describe, "cublasLtGetStatusString");
  find(lt.multiply, "cublasLtMatmul");
  find(lt.propose, "cublasLtMatmulAlgoGetHeuristic");
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

const Library& Library::load() {
  static const Library lt = load_library();
  return lt;
}

void Library::check(Status status, const char* what) const {
  if (status == kSuccess) return;
  fail(status == kNotSupported ? ErrorCode::unsupported : ErrorCode::system, "cuBLASLt: can't {}: {}", what,
       describe(status));
}

}  // namespace shunt::cublas_lt
