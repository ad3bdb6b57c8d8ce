# Compiler settings, tools and the two functions every room's CMakeLists uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# char is signed everywhere, as it is on x86 anyway.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-fsigned-char)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
# What instruments code makes the optimiser slow: at -O0 a sanitizer build costs
# no more time than a release, at -O1 two to four times as much. Kernels are at
# -O1, see models/cpu.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O0 -g1 -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
# g++ spends a twentieth of its time on collecting garbage; few sources need as much
# as 1 GB (the unit is KiB). What comes out is the same, so ccache need not look.
set(no_garbage --param=ggc-min-heapsize)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${no_garbage}=1048576>)
endif()

# Paths are hashed relative to the root, so that two checkouts share results.
find_program(MILLRACE_CCACHE ccache)
if(MILLRACE_CCACHE)
  # env(1), not `cmake -E env`: that one takes 17 ms a source.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
      CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_IGNOREOPTIONS=${no_garbage}*
      ${MILLRACE_CCACHE})
endif()
find_program(MILLRACE_MOLD mold)
if(MILLRACE_MOLD AND CMAKE_CROSSCOMPILING)
  # The cross compiler looks for linkers of its target's name alone: mold, which
  # knows all targets, stands there under the name ld.
  if(EXISTS /usr/libexec/mold/ld)
    add_link_options(-B/usr/libexec/mold)
  endif()
elseif(MILLRACE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE})
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
  if(MILLRACE_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(MILLRACE_FUZZ)
  # Coverage of every library steers the fuzzer, not only that of its own file.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# gRPC and Abseil are not instrumented: a build under ThreadSanitizer stops
# below the server, the one of the fuzzers has neither gRPC nor the programs.
set(MILLRACE_WITH_SERVER ON)
set(MILLRACE_WITH_GRPC ON)
if(MILLRACE_SANITIZE MATCHES thread)
  set(MILLRACE_WITH_SERVER OFF)
endif()
if(MILLRACE_FUZZ OR NOT MILLRACE_WITH_SERVER)
  set(MILLRACE_WITH_GRPC OFF)
endif()

# Programs are position independent (ASLR moves them), bind every symbol at their
# start and make the tables of addresses read-only after that. Checked on the
# release binary by tests/lint/hardening.py.
#
# Those of ASan and the fuzzers stay where they are linked: their tables of places
# to move are a fifth of each file. With debug sections packed, too, a suite has
# 190 MB instead of 280. (zstd packs more, but the symbolizer of LLVM 14 shows no
# lines then.)
if(MILLRACE_FUZZ)
  add_link_options(-Wl,--compress-debug-sections=zlib
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
else()
  include(CheckPIESupported)
  check_pie_supported()
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)

# Archives name their objects instead of copying them.
foreach(language C CXX)
  set(CMAKE_${language}_ARCHIVE_CREATE
      "<CMAKE_AR> qcT <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_APPEND
      "<CMAKE_AR> qT <TARGET> <LINK_FLAGS> <OBJECTS>")
endforeach()

# millrace_harden_folder(): the sources of this folder and the ones below it get
# checked string functions (_FORTIFY_SOURCE) and stack protectors. For folders
# that read bytes of clients; kernels are left as they are. Release only, because
# the sanitizers check the same and more.
#
# -fcf-protection is not set: the start files of Debian 12's C library carry no
# CET mark, so the linker would drop the mark of every program.
macro(millrace_harden_folder)
  if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT MILLRACE_SANITIZE)
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
                        -fstack-protector-strong)
  endif()
endmacro()

# millrace_kernel_checks(a.cc b.cc...): sources of kernels in the build of ASan and
# the fuzzers. The checks of an access are one call: with all of them in line a
# file takes seven times as long to compile (280 s instead of 38). Fuzzers are
# steered by the branches of parsers and plans, not by those of kernels.
function(millrace_kernel_checks)
  if(MILLRACE_FUZZ)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
      -fno-sanitize=fuzzer-no-link,null,alignment,pointer-overflow,object-size
      -mllvm -asan-instrumentation-with-call-threshold=0)
  endif()
endfunction()

find_package(Threads REQUIRED)

add_library(millrace_warnings INTERFACE)
# g++ 12 misjudges moves of std::optional and std::variant at -O2: that warning
# is left to clang and to the sanitizers.
target_compile_options(millrace_warnings INTERFACE
  -Wall -Wextra -Werror -Wnon-virtual-dtor -Wvla
  $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unused-command-line-argument>)
target_include_directories(millrace_warnings INTERFACE ${CMAKE_SOURCE_DIR})

# Libraries are archives. In the build of ASan and the fuzzers they are shared: its
# two hundred programs would else have up to 100 MB each.
set(library_kind STATIC)
if(MILLRACE_FUZZ)
  set(library_kind SHARED)
endif()

# millrace_library(NAME SOURCES a.cc b.cc [LINK public...] [PRIVATE private...])
function(millrace_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(${name} ${library_kind} ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC millrace_warnings ${ARG_LINK}
                                PRIVATE ${ARG_PRIVATE})
  if(library_kind STREQUAL SHARED)  # tests of what is inside need it, too
    foreach(inside ${ARG_PRIVATE})
      target_link_libraries(${name} INTERFACE $<LINK_ONLY:${inside}>)
    endforeach()
  endif()
  millrace_precompiled(${name} library)
endfunction()

# millrace_joined(NAME [APART a.cc...]): six sources of the library are compiled as one,
# where headers (gRPC, JSON) are most of the time; those named stand apart, as must
# one of two that declare the same name outside a header.
function(millrace_joined name)
  cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  set_property(SOURCE ${ARG_APART} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# millrace_test(NAME SOURCES a_test.cc [LINK libs...] [LABELS fast tsan ...])
# One GoogleTest program, one ctest entry. The labels pick the gate's suites:
#   fast   tiny inputs, also run under ASan+UBSan
#   tsan   threaded core, also run under TSan
#   golden needs the default model in the cache
#   emulation takes one core for long: beside others of its kind; all others run
#          alone, as they pin threads that wait for each other
# Targets tests_all and tests_LABEL build the programs of a suite.
function(millrace_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
    if(MILLRACE_SANITIZE)
      set(ARG_TIMEOUT 900)
    endif()
  endif()
  if(CMAKE_CROSSCOMPILING)  # it runs under an emulator
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 6")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE millrace_warnings ${ARG_LINK}
                                        GTest::gtest GTest::gmock
                                        GTest::gtest_main)
  millrace_precompiled(${name} suite)
  if(MILLRACE_FUZZ)  # what a suite covers steers no fuzzer
    target_compile_options(${name} PRIVATE -fno-sanitize=fuzzer-no-link)
  endif()
  add_test(NAME ${name} COMMAND ${name}
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}"
                       TIMEOUT ${ARG_TIMEOUT})
  if(NOT MILLRACE_SANITIZE AND NOT "emulation" IN_LIST ARG_LABELS)
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${cores})
  endif()
  if(CMAKE_CROSSCOMPILING)
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT MILLRACE_TEST_EMULATED=1)
  endif()
  if(MILLRACE_SANITIZE)
    # As without a sanitizer, malloc gives null where there is not as much.
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT ASAN_OPTIONS=allocator_may_return_null=1)
  endif()
  foreach(label all ${ARG_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# millrace_fuzzer(NAME SOURCES a_fuzz.cc [LINK libs...]): built only with
# MILLRACE_FUZZ; its corpus is tests/fuzz/corpus/NAME. Target `fuzzers` builds
# all; their names, one a line, are in fuzzers.txt of the build folder.
function(millrace_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(NOT MILLRACE_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE millrace_warnings ${ARG_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY MILLRACE_FUZZERS ${name})
endfunction()

# Runs when the whole tree has been read.
function(millrace_list_fuzzers)
  get_property(fuzzers GLOBAL PROPERTY MILLRACE_FUZZERS)
  list(JOIN fuzzers "\n" lines)
  file(WRITE ${CMAKE_BINARY_DIR}/fuzzers.txt "${lines}\n")
  add_custom_target(fuzzers DEPENDS ${fuzzers})
endfunction()
if(MILLRACE_FUZZ)
  cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR}
                 CALL millrace_list_fuzzers)
endif()
