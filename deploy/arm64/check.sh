#!/usr/bin/env bash
# Builds Millrace for 64-bit Arm and checks it under emulation, with what
# prepare.sh brings. Takes long on few cores; no part of the gate.
#
#   deploy/arm64/check.sh [kernels|tests|server]...      # default: all of them
#
#   kernels   the tests of every table of kernels
#   tests     all other unit and golden tests
#   server    `millrace` starts, chats and serves ResNet-50 (serve_check.py)
#
# BUILD_JOBS says how many compilers and tests run at a time (default: as many as
# there are cores). Exit status 0 means that all passed.
set -uo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo" || exit 1
jobs=${BUILD_JOBS:-$(nproc)}
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    kernels | tests | server) parts+=("$1") ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "check.sh: there is no part $1; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(kernels tests server)

say() { printf '\n== %s\n' "$*"; }
failures=0
# run NAME COMMAND...
run() {
  local name=$1
  shift
  say "$name"
  if "$@"; then return 0; fi
  echo "check.sh: $name: failed" >&2
  failures=$((failures + 1))
  return 1
}

deploy/arm64/prepare.sh || exit 1
log=build/arm64-configure.log
mkdir -p build
cmake --preset arm64 -DMILLRACE_TESTS=ON >"$log" 2>&1 || {
  tail -n 20 "$log" >&2
  exit 1
}

# Names of tests are those of their programs.
named() { ctest --test-dir build/arm64 -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p'; }
build() { cmake --build build/arm64 -j "$jobs" --target "$@"; }
test_by() {
  ctest --test-dir build/arm64 -j "$jobs" --output-on-failure \
    --no-tests=error "$@"
}
kernels='^(dense|int8|kernels)_.*_test$|^isa_test$'

for part in "${parts[@]}"; do
  case $part in
    kernels)
      # shellcheck disable=SC2046
      run "build the tests of kernels" build $(named -R "$kernels") &&
        run "tests of kernels" test_by -R "$kernels"
      ;;
    tests)
      run "build the other tests" build tests_all &&
        run "the other tests" test_by -E "$kernels" -LE lint
      ;;
    server)
      run "build millrace" build millrace &&
        run "millrace" python3 deploy/arm64/serve_check.py
      ;;
  esac
done

if [ "$failures" -gt 0 ]; then
  echo "check.sh: $failures parts failed" >&2
  exit 1
fi
say "all parts passed: ${parts[*]}"
