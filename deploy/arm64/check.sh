#!/usr/bin/env bash
# Builds Millrace for 64-bit Arm and checks it under emulation, with what
# prepare.sh brings. Takes long on few cores; no part of the gate.
#
#   deploy/arm64/check.sh [--again] [kernels|tests|server|NAME_test]...
#
#   kernels     the tests of every table of kernels
#   tests       all other unit and golden tests
#   server      `millrace` starts, chats and serves ResNet-50 (serve_check.py)
#   NAME_test   one test
#
# Without words all of them. Each test is built, then run, one after the other; one
# that has passed is run again only when its program has changed, so that a check
# that was cut off goes on where it was. --again runs it in any case, as you want it
# after a change of files that tests read. BUILD_JOBS says how many compilers run at
# a time (default: as many as there are cores). Exit status 0 means that all passed.
set -uo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo" || exit 1
jobs=${BUILD_JOBS:-$(nproc)}
parts=()
again=
while [ $# -gt 0 ]; do
  case $1 in
    kernels | tests | server | *_test) parts+=("$1") ;;
    --again) again=yes ;;
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
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
# Sums of the programs that have passed, a file for each.
passed=build/arm64/passed
mkdir -p "$passed"
test_one() {
  local program=build/arm64/bin/$1
  build "$1" >"$passed/$1.log" 2>&1 || { tail -n 30 "$passed/$1.log"; return 1; }
  if [ -z "$again" ] && sha256sum --check --status "$passed/$1" 2>/dev/null; then
    echo "has passed"
    return 0
  fi
  ctest --test-dir build/arm64 -R "^$1\$" --output-on-failure \
    --no-tests=error || return 1
  # A test without a program of its own has no sum, and runs each time.
  if [ -f "$program" ]; then sha256sum "$program" >"$passed/$1"; fi
}
test_all() {
  local names
  names=$(named "$@")
  if [ -z "$names" ]; then
    echo "check.sh: there is no such test" >&2
    failures=$((failures + 1))
  fi
  for name in $names; do run "$name" test_one "$name"; done
}
kernels='^(dense|int8|kernels)_.*_test$|^isa_test$'

for part in "${parts[@]}"; do
  case $part in
    kernels) test_all -R "$kernels" ;;
    tests) test_all -E "$kernels" -LE lint ;;
    *_test) test_all -R "^$part\$" ;;
    server)
      run "build millrace" build millrace &&
        run "millrace" python3 deploy/arm64/serve_check.py
      ;;
  esac
done

if [ "$failures" -gt 0 ]; then
  echo "check.sh: $failures failed" >&2
  exit 1
fi
say "all parts passed: ${parts[*]}"
