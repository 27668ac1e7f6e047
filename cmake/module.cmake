# shunt_module(NAME [NOT_INSTALLED] SOURCES … [PUBLIC …] [PRIVATE …]): one static library per module, linked exactly as
# design says; cmake/install.cmake exports it as shunt::NAME, unless it is not installed.
function(shunt_module name)
  cmake_parse_arguments(arg "NOT_INSTALLED" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(shunt_${name} STATIC ${arg_SOURCES})
  add_library(shunt::${name} ALIAS shunt_${name})
  set_target_properties(shunt_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(shunt_${name} PUBLIC cxx_std_20)
  target_include_directories(shunt_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(shunt_${name} PUBLIC ${arg_PUBLIC} PRIVATE $<BUILD_INTERFACE:shunt_options> ${arg_PRIVATE})
  if(NOT arg_NOT_INSTALLED)
    set_property(GLOBAL APPEND PROPERTY SHUNT_MODULES shunt_${name})
  endif()
endfunction()

# shunt_backend_library(NAME SOURCES … LINK …): libshunt_NAME.so, which is loaded when it is used (src/core/backend.hpp). It holds what
# it needs of shunt, and shows nothing but its entry.
function(shunt_backend_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(shunt_${name}_backend MODULE ${arg_SOURCES})
  set_target_properties(shunt_${name}_backend PROPERTIES OUTPUT_NAME shunt_${name} CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_include_directories(shunt_${name}_backend PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(shunt_${name}_backend PRIVATE shunt_options ${arg_LINK})
  # Sanitizers leave what they define to the program.
  target_link_options(shunt_${name}_backend PRIVATE -Wl,--exclude-libs,ALL $<$<NOT:$<BOOL:${SHUNT_SANITIZE}>>:-Wl,-z,defs>)
  set_property(GLOBAL APPEND PROPERTY SHUNT_BACKENDS shunt_${name}_backend)
  add_dependencies(shunt_backends_built shunt_${name}_backend)
endfunction()
