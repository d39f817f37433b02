# The conformance suite under mpirun, with the MPI that Skein is built with and, where that is Open MPI, with
# MPICH too: the fabric is compiled once more for it.
if(NOT SKEIN_MPI_LIBRARIES OR SKEIN_SANITIZE)  # the sanitizers see MPI's own sins
  return()
endif()

# As root, and with more ranks than cores. Other MPIs do not know these variables.
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none)

# A program of the suite; LIBS bring an MPI.
function(skein_mpi_program name)
  cmake_parse_arguments(arg "" "" "FILES;LIBS" ${ARGN})
  add_executable(${name} conformance/mpi/mpi_worlds.cpp $<TARGET_OBJECTS:conformance_cases> ${arg_FILES})
  skein_target(${name})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest)
  target_compile_options(${name} PRIVATE ${SKEIN_TEST_OPTIONS})
  add_dependencies(conformance_label ${name})
endfunction()

# Runs the cases that match FILTER on RANKS ranks, which `launcher` starts.
function(skein_mpi_cases name program launcher ranks filter)
  add_test(NAME ${name} COMMAND ${launcher} -n ${ranks} $<TARGET_FILE:${program}> --gtest_brief=1 --gtest_filter=${filter})
  set_tests_properties(${name} PROPERTIES LABELS conformance TIMEOUT 3600 PROCESSORS 2 ENVIRONMENT "${mpi_environment}")
endfunction()

skein_mpi_program(mpi_tests LIBS skein_core ${SKEIN_TCP_LIBRARIES} ${SKEIN_MPI_LIBRARIES})
# What the fabric itself promises, at every size, and of what is built on it only what differs most: whoever changes
# this fabric runs all (CONTRIBUTING.md). The program would take minutes for that.
set(of_the_fabric "*Conformance*/mpi_?:*LinesOn*/mpi")
skein_mpi_cases(mpi.conformance mpi_tests ${MPIEXEC_EXECUTABLE} 8 "${of_the_fabric}:*SilenceOn*/mpi")
skein_mpi_cases(mpi.strategies mpi_tests ${MPIEXEC_EXECUTABLE} 4
                "*Strategies*/mpi_4_dear:*Conformance.AllReduce*/mpi_device_2")

# A program of a user's: how it ends, well and not.
add_executable(mpi_world_program conformance/mpi/world_program.cpp)
skein_target(mpi_world_program)
target_link_libraries(mpi_world_program PRIVATE skein_core)
add_dependencies(conformance_label mpi_world_program)
add_test(NAME mpi.world COMMAND ${MPIEXEC_EXECUTABLE} -n 3 $<TARGET_FILE:mpi_world_program>)
add_test(NAME mpi.world_fails COMMAND ${MPIEXEC_EXECUTABLE} -n 3 $<TARGET_FILE:mpi_world_program> fail)
set_tests_properties(mpi.world mpi.world_fails PROPERTIES LABELS conformance TIMEOUT 900 ENVIRONMENT "${mpi_environment}")
set_tests_properties(mpi.world_fails PROPERTIES PASS_REGULAR_EXPRESSION "a reason of its own")

find_program(SKEIN_MPICH_RUN mpiexec.mpich)
find_path(SKEIN_MPICH_INCLUDE mpi.h PATH_SUFFIXES mpich NO_CMAKE_FIND_ROOT_PATH)
find_library(SKEIN_MPICH_LIBRARY mpich)
if(SKEIN_MPICH_RUN AND SKEIN_MPICH_INCLUDE AND SKEIN_MPICH_LIBRARY AND NOT "${MPI_CXX_LIBRARIES}" MATCHES mpich)
  # The library as a file: the target would bring the other MPI.
  skein_mpi_program(mpich_tests FILES ${SKEIN_MPI_SOURCES}
                    LIBS $<TARGET_FILE:skein_core> fmt::fmt Threads::Threads ${SKEIN_TCP_LIBRARIES} ${SKEIN_CUDA_LIBRARIES}
                         ${SKEIN_MPICH_LIBRARY})
  target_include_directories(mpich_tests SYSTEM BEFORE PRIVATE ${SKEIN_MPICH_INCLUDE})
  add_dependencies(mpich_tests skein_core)
  skein_mpi_cases(mpich.conformance mpich_tests ${SKEIN_MPICH_RUN} 8 "${of_the_fabric}")
else()
  add_test(NAME mpich.conformance COMMAND ${CMAKE_COMMAND} -E echo "skipped: no MPICH beside the MPI of the build (apt install mpich libmpich-dev)")
  set_tests_properties(mpich.conformance PROPERTIES LABELS conformance SKIP_REGULAR_EXPRESSION "skipped:")
endif()
