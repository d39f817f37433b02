# How Skein's own targets are compiled.

# What nearly every file includes takes a second of the two that a file takes: precompiled once.
set(SKEIN_COMMON_HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <deque> <functional> <map>
    <memory> <numeric> <optional> <set> <span> <string> <string_view> <utility> <vector> <fmt/format.h>)

# Test programs spend their time in the libraries: they need little optimisation to compile sooner.
set(SKEIN_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(SKEIN_SANITIZE)
  set(SKEIN_TEST_OPTIONS -O0)
endif()

# Warnings, include paths and sanitizers for a target of ours.
function(skein_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  # GCC 13 takes a view for the owner of what it shows.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>
    $<$<BOOL:${SKEIN_WERROR}>:-Werror>)
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  if(SKEIN_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${SKEIN_SANITIZE} -fno-sanitize-recover=all)
    # -O1: coroutines at -O0 are slow under sanitizers and hide nothing that -O1 would show. -g1, for
    # lines in reports: more takes half as long again to compile.
    target_compile_options(${target} PRIVATE -O1 -g1 -Wno-maybe-uninitialized)  # g++ errs in the last
    target_link_options(${target} PUBLIC -fsanitize=${SKEIN_SANITIZE})
  endif()
endfunction()

# Headers take most of the time of most files: BATCH files are compiled as one, or, for FOLDERS, all files of a folder.
function(skein_unity target batch)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SKEIN_UNITY})
  if(batch STREQUAL "FOLDERS")
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    foreach(source ${sources})
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src)
      string(REPLACE "/" "_" folder ${folder})
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
    endforeach()
  else()
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
  if(SKEIN_UNITY)  # g++ takes a type of such a file for one that a header lets others see
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# A library that is installed: target skein_NAME, known to users as skein::NAME.
function(skein_library name)
  add_library(skein_${name} STATIC ${ARGN})
  add_library(skein::${name} ALIAS skein_${name})
  set_target_properties(skein_${name} PROPERTIES EXPORT_NAME ${name})
  skein_target(skein_${name})
endfunction()

# The tcp fabric needs OpenSSL; where that is missing, or not wanted, no_tcp.cpp stands in for it.
macro(skein_choose_tcp sources)
  if(SKEIN_TCP)
    find_package(OpenSSL 3.0)
  endif()
  if(SKEIN_TCP AND OPENSSL_FOUND)
    list(FILTER ${sources} EXCLUDE REGEX "/fabric/tcp/no_tcp\\.cpp$")
    set(SKEIN_TCP_LIBRARIES OpenSSL::SSL OpenSSL::Crypto)
  else()
    list(FILTER ${sources} EXCLUDE REGEX "/fabric/tcp/")
    list(APPEND ${sources} ${PROJECT_SOURCE_DIR}/src/fabric/tcp/no_tcp.cpp)
    set(SKEIN_TCP_LIBRARIES)
  endif()
endmacro()

# The mpi fabric needs an MPI; where that is missing, or not wanted, no_mpi.cpp stands in for it.
macro(skein_choose_mpi sources)
  set(SKEIN_MPI_LIBRARIES)
  if(SKEIN_MPI)
    set(MPI_CXX_SKIP_MPICXX TRUE)  # we call the C functions
    find_package(MPI COMPONENTS CXX)
  endif()
  list(FILTER ${sources} EXCLUDE REGEX "/fabric/mpi/")
  if(SKEIN_MPI AND MPI_CXX_FOUND)
    file(GLOB SKEIN_MPI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/fabric/mpi/*.cpp)
    list(FILTER SKEIN_MPI_SOURCES EXCLUDE REGEX "/no_mpi\\.cpp$")
    list(APPEND ${sources} ${SKEIN_MPI_SOURCES})
    set(SKEIN_MPI_LIBRARIES MPI::MPI_CXX)
  else()
    list(APPEND ${sources} ${PROJECT_SOURCE_DIR}/src/fabric/mpi/no_mpi.cpp)
  endif()
endmacro()

# GPUs need CUDA's compiler; where that is missing, or not wanted, no_cuda.cpp stands in. CUDA's runtime
# library is linked into ours, so that programs start where there is no driver.
macro(skein_choose_cuda sources)
  set(SKEIN_CUDA_LIBRARIES)
  if(SKEIN_CUDA)
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(SKEIN_CUDA AND CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      find_program(SKEIN_NVIDIA_SMI nvidia-smi)  # where there is a GPU, for that one
      if(SKEIN_NVIDIA_SMI)
        set(CMAKE_CUDA_ARCHITECTURES native)
      else()
        set(CMAKE_CUDA_ARCHITECTURES 75 80 90)  # and, by what these leave for it, later ones
      endif()
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
    # No fused multiply-add: the bits of the host.
    add_library(skein_cuda OBJECT ${cuda_kernels})
    set_target_properties(skein_cuda PROPERTIES CUDA_STANDARD 20 POSITION_INDEPENDENT_CODE ON)
    target_compile_options(skein_cuda PRIVATE --extended-lambda -fmad=false)
    target_include_directories(skein_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
    list(FILTER ${sources} EXCLUDE REGEX "/cuda/no_cuda\\.cpp$")
    list(APPEND ${sources} $<TARGET_OBJECTS:skein_cuda>)
    set(SKEIN_CUDA_LIBRARIES CUDA::cudart_static)
    # CUDA's headers are for these files alone: the others are compiled as without CUDA, and ccache knows it.
    file(GLOB cuda_users CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp)
    set_property(SOURCE ${cuda_users} APPEND PROPERTY COMPILE_OPTIONS -isystem ${CUDAToolkit_INCLUDE_DIRS})
  else()
    list(FILTER ${sources} EXCLUDE REGEX "/src/cuda/")
    list(APPEND ${sources} ${PROJECT_SOURCE_DIR}/src/cuda/no_cuda.cpp)
  endif()
endmacro()

# The live page needs cpp-httplib; where that is missing no_server.cpp stands in for it.
macro(skein_choose_httplib sources)
  set(SKEIN_HTTPLIB)
  find_package(httplib QUIET)
  if(TARGET httplib::httplib)
    set(SKEIN_HTTPLIB httplib::httplib)
  else()
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(SKEIN_CPP_HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)
    endif()
    if(TARGET PkgConfig::SKEIN_CPP_HTTPLIB)
      set(SKEIN_HTTPLIB PkgConfig::SKEIN_CPP_HTTPLIB)
    endif()
  endif()
  if(SKEIN_HTTPLIB)
    list(FILTER ${sources} EXCLUDE REGEX "/page/no_server\\.cpp$")
  else()
    list(FILTER ${sources} EXCLUDE REGEX "/page/server\\.cpp$")
    message(STATUS "cpp-httplib is not found: there will be no live page")
  endif()
endmacro()

# PyTorch's own builds of LibTorch 2 bring fmt's headers, of another version than the library that is
# linked, and without a library of their own: what sees them must not need one.
function(skein_find_foreign_fmt)
  foreach(folder ${TORCH_INCLUDE_DIRS})
    if(NOT folder STREQUAL "/usr/include" AND EXISTS ${folder}/fmt/format.h)
      set(SKEIN_FOREIGN_FMT FMT_HEADER_ONLY PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# PyTorch's own builds of LibTorch export a std::filesystem of their own, older than the compiler's
# headers. The dynamic linker takes whichever library a program names first, so every program that
# links TARGET, an installed one's user included, names the C++ library before all others. By its
# file's name: some compilers have an archive that -lstdc++ would find instead.
function(skein_standard_library_first target)
  target_link_options(${target} INTERFACE LINKER:--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state)
endfunction()

# Torch's headers take 15 s a file, 8 s when precompiled: precompile them and compile several files
# as one. They are not ours to warn about.
function(skein_torch_headers target)
  skein_unity(${target} 12)
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)  # g++ 13 errs in both
  # All that share the precompiled header have the same definitions.
  target_compile_definitions(${target} PRIVATE ${SKEIN_FOREIGN_FMT} SKEIN_VERSION="${PROJECT_VERSION}")
  if(target STREQUAL "skein_torch")
    target_precompile_headers(${target} PRIVATE <torch/torch.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM skein_torch)
    # The header was compiled with -fPIC; an executable's -fPIE would not fit it.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# toml++ as an installed package or, where there is none, as a folder that holds toml++/toml.h.
macro(skein_find_tomlplusplus)
  if(NOT TARGET tomlplusplus::tomlplusplus)
    find_package(tomlplusplus QUIET)
  endif()
  if(NOT TARGET tomlplusplus::tomlplusplus)
    find_path(SKEIN_TOMLPLUSPLUS_INCLUDE toml++/toml.h DOC "A folder that holds toml++/toml.h" REQUIRED)
    add_library(skein_tomlplusplus INTERFACE)
    target_include_directories(skein_tomlplusplus SYSTEM INTERFACE ${SKEIN_TOMLPLUSPLUS_INCLUDE})
    add_library(tomlplusplus::tomlplusplus ALIAS skein_tomlplusplus)
  endif()
endmacro()

# A test program from FILES…; every case in it becomes a ctest test. With TORCH the program does, since
# loading torch takes a second; where there are PARTS, for thousands of cases, each of these does; with
# SKEIN_SANITIZE each of its SHARDS parts does, since starting a process takes long, and cases that match
# SLOW are left out. LABEL is its folder. PROPERTIES are those of each case's test. The target LABEL_label
# builds all that have the label.
function(skein_test name)
  cmake_parse_arguments(arg "TORCH" "LABEL;TIMEOUT;SHARDS;PARTS" "FILES;LIBS;SLOW;PROPERTIES" ${ARGN})
  add_executable(${name} ${arg_FILES})
  skein_target(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest_main)
  if(arg_TORCH)
    skein_torch_headers(${name})
  else()
    target_precompile_headers(${name} REUSE_FROM test_headers)
    target_compile_options(${name} PRIVATE ${SKEIN_TEST_OPTIONS})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)  # a safety net: tests end what hangs themselves, and machines may be busy
  endif()
  if(NOT TARGET ${arg_LABEL}_label)
    add_custom_target(${arg_LABEL}_label)
  endif()
  add_dependencies(${arg_LABEL}_label ${name})
  if(arg_TORCH)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
    set_property(TEST ${name} PROPERTY ENVIRONMENT OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1)
  elseif(SKEIN_SANITIZE)
    if(NOT arg_SHARDS)
      set(arg_SHARDS 1)
    endif()
    list(JOIN arg_SLOW ":" slow)
    math(EXPR last "${arg_SHARDS} - 1")
    # Tests that fork run beside threads of earlier ones: their children may have threads all the same.
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.${shard} COMMAND ${name} --gtest_brief=1 --gtest_filter=-${slow})
      set_tests_properties(${name}.${shard} PROPERTIES LABELS ${arg_LABEL} TIMEOUT 3600
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard};TSAN_OPTIONS=die_after_fork=0")
    endforeach()
  elseif(arg_PARTS)
    math(EXPR last "${arg_PARTS} - 1")
    foreach(part RANGE ${last})
      add_test(NAME ${name}.${part} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${part} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT}
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_PARTS};GTEST_SHARD_INDEX=${part}")
    endforeach()
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 600
                         PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} ${arg_PROPERTIES})
  endif()
endfunction()
