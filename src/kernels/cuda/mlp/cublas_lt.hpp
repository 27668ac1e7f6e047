// cuBLASLt, loaded when it is first needed: half a gigabyte that no other part of shunt wants.
#pragma once

#include <cublasLt.h>

namespace shunt::device {

/// The functions that are used, under their own names.
struct CublasLt {
  /// Throws Error(unsupported) where the library is not found.
  static const CublasLt& get();

  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetStatusString) status_string;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) find_algorithm;
  decltype(&::cublasLtMatmulDescCreate) create_product;
  decltype(&::cublasLtMatmulDescDestroy) destroy_product;
  decltype(&::cublasLtMatmulDescSetAttribute) set_of_product;
  decltype(&::cublasLtMatrixLayoutCreate) create_layout;
  decltype(&::cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&::cublasLtMatrixLayoutSetAttribute) set_of_layout;
  decltype(&::cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&::cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) set_of_preference;

  /// Throws Error(system) unless all went well. `what` says what was attempted.
  void check(cublasStatus_t status, const char* what) const;
};

}  // namespace shunt::device
