# Headers, libraries, the command line, and the package that find_package(shunt) finds.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shunt)

get_property(modules GLOBAL PROPERTY SHUNT_MODULES)
get_property(backends GLOBAL PROPERTY SHUNT_BACKENDS)
install(TARGETS ${modules} shunt_shunt shunt_library EXPORT shunt)
install(TARGETS ${backends} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Beside libshunt.so, which looks for it there.
list(GET hwy_LINK_LIBRARIES 0 highway)
file(REAL_PATH ${highway} highway)
get_filename_component(highway_folder ${highway} DIRECTORY)
file(GLOB highway_files ${highway_folder}/libhwy.so.[0-9]*)
install(FILES ${highway_files} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS shunt_cli)
install(DIRECTORY include/ DESTINATION include)
install(EXPORT shunt NAMESPACE shunt:: DESTINATION ${package_dir} FILE shunt-targets.cmake)

write_basic_package_version_file(shunt-config-version.cmake COMPATIBILITY SameMajorVersion)
configure_file(cmake/shunt-config.cmake.in package/shunt-config.cmake @ONLY)  # not where find_package looks in a build tree
install(FILES ${PROJECT_BINARY_DIR}/package/shunt-config.cmake ${PROJECT_BINARY_DIR}/shunt-config-version.cmake
  DESTINATION ${package_dir})
file(RELATIVE_PATH shunt_prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/shunt.pc.in shunt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/shunt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
