# Third-party libraries; tools/packages.txt lists the Debian packages that hold them.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED hwloc)  # its header only: src/core/machine.cpp loads the library
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)  # its header only: nothing links to it

# Programs that may need a backend's library depend on it.
add_custom_target(shunt_backends_built)

# Who links shunt_backends sees SHUNT_HAVE_<NAME>=0|1 for every backend; `shunt info` prints them.
add_library(shunt_backends INTERFACE)

# shunt_backend(NAME FOUND_VARIABLE [NOTE]): settles an AUTO|ON|OFF switch and says what it settled on.
function(shunt_backend name found)
  if(SHUNT_${name} STREQUAL "ON" AND NOT ${found})
    message(FATAL_ERROR "SHUNT_${name}=ON, but ${name} was not found")
  endif()
  set(have 0)
  set(verdict "not found")
  if(SHUNT_${name} STREQUAL "OFF")
    set(verdict "left out")
  elseif(${found})
    set(have 1)
    string(JOIN ", " verdict "found" ${ARGN})
  endif()
  set(SHUNT_HAVE_${name} ${have} PARENT_SCOPE)
  target_compile_definitions(shunt_backends INTERFACE SHUNT_HAVE_${name}=${have})
  message(STATUS "shunt: ${name} ${verdict} (SHUNT_${name}=${SHUNT_${name}})")
endfunction()

if(NOT SHUNT_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface, called from C++
  find_package(MPI QUIET COMPONENTS CXX)
endif()
shunt_backend(MPI MPI_CXX_FOUND)

if(NOT SHUNT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit 12.5 QUIET GLOBAL)
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(cuda_FOUND ON)
  endif()
endif()
shunt_backend(CUDA cuda_FOUND "version ${CUDAToolkit_VERSION}")
if(SHUNT_HAVE_CUDA)
  # What runs natively; newer devices compile the newest of these at start. Cache hints need 8.0.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90 CACHE STRING "GPUs to compile for")
  endif()
  enable_language(CUDA)
endif()

if(NOT SHUNT_UCX STREQUAL "OFF")
  pkg_check_modules(ucx QUIET IMPORTED_TARGET ucx)
endif()
shunt_backend(UCX ucx_FOUND)

if(NOT SHUNT_PMIX STREQUAL "OFF")
  pkg_check_modules(pmix QUIET IMPORTED_TARGET pmix>=4)
endif()
shunt_backend(PMIX pmix_FOUND)

# NCCL itself is looked for at run time (src/transport/nccl/library.hpp); it is used with CUDA only.
shunt_backend(NCCL SHUNT_HAVE_CUDA "its library is loaded at run time")

# The products of src/layer: oneDNN, or else OpenBLAS. Looked for by file, as oneDNN's own package asks for the compiler's OpenMP
# runtime, which need not be the one that its library was built with.
if(NOT SHUNT_ONEDNN STREQUAL "OFF")
  find_path(ONEDNN_INCLUDE_DIR dnnl.hpp)
  find_library(ONEDNN_LIBRARY dnnl)
  if(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY)
    set(onednn_FOUND ON)
  endif()
endif()
shunt_backend(ONEDNN onednn_FOUND)
if(NOT SHUNT_HAVE_ONEDNN)
  pkg_check_modules(openblas QUIET IMPORTED_TARGET openblas)
  if(openblas_FOUND)
    message(STATUS "shunt: OpenBLAS ${openblas_VERSION} computes the experts on the CPU")
  else()
    message(STATUS "shunt: neither oneDNN nor OpenBLAS: no experts on the CPU")
  endif()
endif()
