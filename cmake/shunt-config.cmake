# Finds what the installed archives link to; cmake/dependencies.cmake finds the same for the build.

include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(OpenSSL COMPONENTS Crypto)
find_dependency(PkgConfig)
pkg_check_modules(hwloc REQUIRED QUIET IMPORTED_TARGET hwloc)
pkg_check_modules(hwy REQUIRED QUIET IMPORTED_TARGET libhwy)

include(${CMAKE_CURRENT_LIST_DIR}/shunt-targets.cmake)
