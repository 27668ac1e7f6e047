// The part of cuBLASLt used here, loaded at run time: building needs no header of it, and only this part of shunt needs
// the half gigabyte. Values are those of cublasLt.h 13.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>

namespace shunt::cublas_lt {

/// Results of the functions; the library describes further values itself.
enum Status : int { kSuccess = 0, kNotSupported = 15 };
enum ComputeType : int { kFloat = 68 };
enum Operation : std::int32_t { kTransposed = 1 };
enum BatchMode : std::uint32_t { kPointerArray = 1 };
enum ReductionScheme : std::uint32_t { kNoReduction = 0 };

enum ProductAttribute : int { kOperationOnA = 3, kMultiprocessors = 15 };
enum LayoutAttribute : int { kBatchCount = 5, kBatchMode = 8 };
enum PreferenceAttribute : int {
  kMostWorkspaceBytes = 1,
  kReductionSchemes = 3,
  kLeastAlignmentOfA = 5,
  kLeastAlignmentOfB = 6,
  kLeastAlignmentOfC = 7,
  kLeastAlignmentOfD = 8
};

using Handle = struct OpaqueHandle*;
using Product = struct OpaqueProduct*;
using Layout = struct OpaqueLayout*;
using Preference = struct OpaquePreference*;

struct Algorithm {
  std::uint64_t words[8];
};
struct Proposal {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status status;
  float waves;
  int reserved[4];
};

struct Library {
  /// Loads the library once per process. Throws Error(unsupported) that names what is missing.
  static const Library& load();

  Status (*create)(Handle* handle);
  Status (*destroy)(Handle handle);
  const char* (*describe)(Status status);
  Status (*multiply)(Handle handle, Product product, const void* alpha, const void* a, Layout of_a, const void* b,
                     Layout of_b, const void* beta, const void* c, Layout of_c, void* d, Layout of_d,
                     const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, cudaStream_t stream);
  Status (*propose)(Handle handle, Product product, Layout a, Layout b, Layout c, Layout d, Preference preference,
                    int most, Proposal* proposals, int* count);
  Status (*create_product)(Product* product, ComputeType compute, cudaDataType_t scale);
  Status (*destroy_product)(Product product);
  Status (*set_of_product)(Product product, ProductAttribute attribute, const void* value, std::size_t bytes);
  Status (*create_layout)(Layout* layout, cudaDataType_t type, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t stride);
  Status (*destroy_layout)(Layout layout);
  Status (*set_of_layout)(Layout layout, LayoutAttribute attribute, const void* value, std::size_t bytes);
  Status (*create_preference)(Preference* preference);
  Status (*destroy_preference)(Preference preference);
  Status (*set_of_preference)(Preference preference, PreferenceAttribute attribute, const void* value,
                              std::size_t bytes);

  /// Throws Error unless status is kSuccess. what: the attempted action, for the message.
  void check(Status status, const char* what) const;
};

}  // namespace shunt::cublas_lt
