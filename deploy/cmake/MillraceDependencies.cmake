# What is looked for outside the rooms: tests, oneDNN, xgrammar, CUDA. Libraries that one
# room uses are found in that room's CMakeLists.txt.

# ON: required. OFF: not built. AUTO: built where GoogleTest is installed.
set(MILLRACE_TESTS AUTO CACHE STRING "Build the tests: ON, OFF or AUTO")
if(MILLRACE_TESTS STREQUAL AUTO)
  find_package(GTest QUIET)
  set(MILLRACE_TESTS ${GTest_FOUND})
  if(NOT GTest_FOUND)
    message(STATUS "Tests: left out, GoogleTest is not installed")
  endif()
elseif(MILLRACE_TESTS)
  find_package(GTest REQUIRED)
endif()

if(NOT "$ENV{MILLRACE_CACHE}" STREQUAL "")
  set(millrace_cache $ENV{MILLRACE_CACHE})
elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(millrace_cache $ENV{XDG_CACHE_HOME}/millrace)
else()
  set(millrace_cache $ENV{HOME}/.cache/millrace)
endif()

# oneDNN 3.2 stands in the cache, put there by deploy/install_deps.sh; another
# build of version 3 is taken by -Ddnnl_DIR=. Its wheel is of x86-64 alone.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(STATUS "oneDNN: left out on ${CMAKE_SYSTEM_PROCESSOR}")
elseif(NOT MILLRACE_SANITIZE MATCHES thread)
  find_package(dnnl 3.2 CONFIG QUIET
               PATHS ${millrace_cache}/deps/onednn-2023.2.0 NO_DEFAULT_PATH)
  if(dnnl_FOUND)
    message(STATUS "oneDNN: ${dnnl_VERSION} in ${dnnl_DIR}")
  else()
    message(FATAL_ERROR
      "oneDNN 3.2 is not in ${millrace_cache}/deps. Run deploy/install_deps.sh "
      "to fetch it, or name the folder of another build's dnnl-config.cmake "
      "with -Ddnnl_DIR=FOLDER.")
  endif()
endif()

# xgrammar, for structured output: its headers are needed to build, its libraries
# are opened while the program runs. It stands in the cache like oneDNN.
set(MILLRACE_XGRAMMAR_PREFIX ${millrace_cache}/deps/xgrammar-0.2.8 CACHE PATH
    "Folder with include/tvm/ffi/c_api.h, lib/libxgrammar_bindings.so and
    lib/libtvm_ffi.so")
# ON: required. OFF: requests for structured output are refused. AUTO: built
# where xgrammar is installed.
set(MILLRACE_STRUCTURED AUTO CACHE STRING
    "Build structured output: ON, OFF or AUTO")
if(EXISTS ${MILLRACE_XGRAMMAR_PREFIX}/packages.txt)
  set(millrace_xgrammar_found ON)
else()
  set(millrace_xgrammar_found OFF)
endif()
if(MILLRACE_STRUCTURED STREQUAL AUTO)
  set(MILLRACE_STRUCTURED ${millrace_xgrammar_found})
elseif(MILLRACE_STRUCTURED AND NOT millrace_xgrammar_found)
  message(FATAL_ERROR
    "xgrammar is not in ${MILLRACE_XGRAMMAR_PREFIX}. Run deploy/install_deps.sh "
    "to fetch it, or build without it: -DMILLRACE_STRUCTURED=OFF.")
endif()
# ThreadSanitizer sees code that is built here only.
if(MILLRACE_SANITIZE MATCHES thread)
  set(MILLRACE_STRUCTURED OFF)
endif()
if(MILLRACE_STRUCTURED)
  message(STATUS "Structured output: xgrammar in ${MILLRACE_XGRAMMAR_PREFIX}")
else()
  message(STATUS "Structured output: left out")
endif()

# For the module of models/group/mpi; the server itself links none of it.
if(NOT MILLRACE_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  set(MPI_CXX_SKIP_MPICXX ON)  # the old C++ bindings
  find_package(MPI QUIET COMPONENTS CXX)
endif()
if(MPI_CXX_FOUND)
  message(STATUS "MPI: ${MPI_CXX_VERSION} found, --tensor-parallel-size works")
else()
  message(STATUS "MPI: not found, no module for --tensor-parallel-size")
endif()

# For the module that models/cuda builds; the server itself links none of it.
if(NOT CMAKE_CROSSCOMPILING)
  find_package(CUDAToolkit QUIET)
endif()
if(CUDAToolkit_FOUND)
  message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION} found")
else()
  message(STATUS "CUDA: toolkit not found, no module for GPUs")
endif()
