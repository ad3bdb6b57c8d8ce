# Precompiled headers of the sanitizers' builds, where reading headers is most of a
# source's time: one file for libraries, one for suites, which have GoogleTest
# besides. The other builds do without, so that a forgotten include is found there.

set(MILLRACE_PRECOMPILED OFF)
if(MILLRACE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set(MILLRACE_PRECOMPILED ON)
  set(library_headers
      <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable>
      <cstdint> <cstdio> <cstring> <deque> <filesystem> <fstream> <functional>
      <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream>
      <stop_token> <string> <string_view> <thread> <unordered_map> <utility>
      <variant> <vector> <nlohmann/json.hpp>)
  set(suite_headers ${library_headers} <gmock/gmock.h> <gtest/gtest.h>)

  set(folder ${CMAKE_BINARY_DIR}/precompiled)
  file(CONFIGURE OUTPUT ${folder}/empty.cc CONTENT "int main() {}\n")
  add_library(millrace_library_headers OBJECT ${folder}/empty.cc)
  add_executable(millrace_suite_headers EXCLUDE_FROM_ALL ${folder}/empty.cc)
  target_link_libraries(millrace_suite_headers PRIVATE GTest::gtest)
  if(MILLRACE_FUZZ)
    target_compile_options(millrace_suite_headers PRIVATE
                           -fno-sanitize=fuzzer-no-link)
  endif()

  # A precompiled file names the folder it was made in, so its bytes are not the same
  # in two checkouts. ccache reads PATH.sum in its place (CCACHE_PCH_EXTSUM): the sum
  # of all that the headers hold. It does not look into the option -include, which
  # CMake adds and clang does not need.
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
  list(TRANSFORM suite_headers REPLACE "(.+)" "#include \\1\n" OUTPUT_VARIABLE lines)
  string(CONCAT lines ${lines})
  file(CONFIGURE OUTPUT ${folder}/headers.cc CONTENT "${lines}")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E ${folder}/headers.cc
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "${CMAKE_BINARY_DIR}" "" text "${text}")
  string(SHA256 sum "${text}")

  foreach(kind library suite)
    set(target millrace_${kind}_headers)
    target_link_libraries(${target} PRIVATE millrace_warnings)
    target_precompile_headers(${target} PRIVATE ${${kind}_headers})
    file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum
         ${sum})
  endforeach()
endif()

# millrace_precompiled(TARGET library|suite): the sources of TARGET begin with the
# headers of that kind. Those with options of their own (-O1, -mavx2) cannot read the
# file: give them the property SKIP_PRECOMPILE_HEADERS, or a folder of them
# set(MILLRACE_PRECOMPILED OFF).
function(millrace_precompiled target kind)
  if(MILLRACE_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM millrace_${kind}_headers)
  endif()
endfunction()
