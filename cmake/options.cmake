# What can be switched, and the warnings and arithmetic rules that every target obeys.

option(SHUNT_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SHUNT_BENCHMARKS "Build the micro benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(SHUNT_FUZZ "Build the fuzzers; needs clang" OFF)
option(SHUNT_WERROR "Treat warnings as errors" OFF)
set(SHUNT_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

foreach(backend CUDA MPI NCCL ONEDNN PMIX UCX)
  set(SHUNT_${backend} AUTO CACHE STRING "AUTO uses ${backend} where it is found, ON demands it, OFF leaves it out")
  set_property(CACHE SHUNT_${backend} PROPERTY STRINGS AUTO ON OFF)
  if(NOT SHUNT_${backend} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "SHUNT_${backend} is '${SHUNT_${backend}}'; it takes AUTO, ON or OFF")
  endif()
endforeach()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

add_library(shunt_options INTERFACE)
target_compile_features(shunt_options INTERFACE cxx_std_20)
set(host_options
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${SHUNT_WERROR}>:-Werror>
  # gcc 12 at -O3 suspects fmt 9's format parser, wrongly.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
  # Results are defined by rounded multiplies and rounded adds (docs/adr/0002): never fuse them.
  -ffp-contract=off)
set(device_options
  -std=c++20  # CMake 3.25 does not know that nvcc 13 has it
  -fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra $<$<BOOL:${SHUNT_WERROR}>:-Werror=all-warnings>)
target_compile_options(shunt_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${host_options}>" "$<$<COMPILE_LANGUAGE:CUDA>:${device_options}>")
if(SHUNT_SANITIZE)
  target_compile_options(shunt_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SHUNT_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(shunt_options INTERFACE -fsanitize=${SHUNT_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the checkout: all checkouts on a machine share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
