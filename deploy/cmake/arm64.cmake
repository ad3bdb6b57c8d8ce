# Toolchain file of the preset `arm64`: builds for 64-bit Arm with Debian's cross
# compiler and the sysroot that deploy/arm64/prepare.sh makes. What is built runs
# under qemu, so that ctest and generators of test data work as at home.
#
# The baseline is Armv8.0 with NEON; kernels that need more are compiled with
# their own flags and chosen at run time (models/cpu/isa.h).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

if(NOT "$ENV{MILLRACE_CACHE}" STREQUAL "")
  set(cache $ENV{MILLRACE_CACHE})
elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(cache $ENV{XDG_CACHE_HOME}/millrace)
else()
  set(cache $ENV{HOME}/.cache/millrace)
endif()
set(CMAKE_SYSROOT ${cache}/deps/arm64-sysroot)
if(NOT EXISTS ${CMAKE_SYSROOT}/complete)
  message(FATAL_ERROR "There are no libraries of arm64 in ${CMAKE_SYSROOT}. "
                      "Run deploy/arm64/prepare.sh.")
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
# All features that it knows, and one thread of the emulator for each of ours.
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L ${CMAKE_SYSROOT} CACHE STRING "Runs what is built")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR}
    ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
