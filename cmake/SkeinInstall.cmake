# `cmake --install`: the libraries, their public headers, what `find_package(skein CONFIG)` and pkg-config need
# (the component library), and the command line with completion and guides (program).
option(SKEIN_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
if(NOT PROJECT_IS_TOP_LEVEL)
  # Whoever links our targets needs those that we have found (torch, fmt), and is outside this folder.
  get_directory_property(found_targets IMPORTED_TARGETS)
  set_target_properties(${found_targets} PROPERTIES IMPORTED_GLOBAL ON)
endif()
if(NOT SKEIN_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/skein)

# Each library has an export file of its own, so that a program that wants only skein::core need
# not have torch.
function(skein_install_library name)
  # Compiled into the library and header-only: a program that links the library needs none of it.
  get_target_property(links skein_${name} INTERFACE_LINK_LIBRARIES)
  list(REMOVE_ITEM links "$<LINK_ONLY:nlohmann_json::nlohmann_json>" "$<LINK_ONLY:Eigen3::Eigen>")
  set_target_properties(skein_${name} PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")

  install(TARGETS skein_${name} EXPORT skein_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(EXPORT skein_${name} NAMESPACE skein:: FILE skein_${name}.cmake DESTINATION ${package_dir}
          COMPONENT library)
endfunction()

skein_install_library(core)
set(torch_headers PATTERN "torch*.h" EXCLUDE)
if(SKEIN_TORCH)
  skein_install_library(torch)
  set(torch_headers)
endif()
if(TARGET skein)
  # This LibTorch's folder first: the system's, where other libraries are, may hold another LibTorch.
  set_target_properties(skein-torch PROPERTIES INSTALL_RPATH "${TORCH_INSTALL_PREFIX}/lib" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS skein RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(TARGETS skein-torch RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/skein COMPONENT program)
  install(FILES packaging/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME skein
          COMPONENT program)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program
          PATTERN reference EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/skein DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
        FILES_MATCHING PATTERN "*.h" ${torch_headers})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/skeinConfig.cmake.in
  ${PROJECT_BINARY_DIR}/skeinConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/skeinConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/skeinConfig.cmake ${PROJECT_BINARY_DIR}/skeinConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT library)
include(SkeinPkgConfig)
include(SkeinDeb)
