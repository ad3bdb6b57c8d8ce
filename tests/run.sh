#!/usr/bin/env bash
# The gate: installs what the tests need, builds, runs every suite and closes
# with the line "N passed, N failed". Exit status 0 means that all passed.
#
#   tests/run.sh [--full]
#
#   release   all suites, lint, and tests/e2e against the real binary
#   asan      ASan + UBSan on the suites labelled fast   (--full: on all),
#             then each fuzzer for 3 s on its corpus      (--full: 120 s)
#   tsan      TSan on the suites labelled tsan           (--full: on all)
#
# One build by clang serves both: suites and fuzzers link the same objects. The
# suites of the release and the end-to-end tests, which wait more than they compute,
# run while the sanitizers' builds take what they leave of the cores; those of ASan
# beside the build of TSan, if the others are over.
#
# Results stay in build/results; a finding of a fuzzer in build/asan/findings.
set -uo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repo" || exit 1
full=false
case ${1:-} in
  "") ;;
  --full) full=true ;;
  -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "run.sh: there is no option $1; see --help" >&2; exit 2 ;;
esac

cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
results=$repo/build/results
rm -rf "$results"
mkdir -p "$results"
: >"$results/steps.tsv"
export NINJA_STATUS='[%f/%t %es] '

began=$SECONDS
# step NAME COMMAND...: announces, runs, times and records one step.
step() {
  local name=$1 start=$SECONDS outcome=passed
  shift
  printf '\n== %s\n' "$name"
  "$@" || outcome=failed
  printf '== %s: %s after %d s\n' "$name" "$outcome" $((SECONDS - start))
  # A fuzzer is a test; of the other steps only failures count.
  [ "$outcome" = failed ] || [[ $name = fuzz\ * ]] &&
    printf '%s\t%s\n' "$name" "$outcome" >>"$results/steps.tsv"
  [ "$outcome" = passed ]
}

finish() {
  printf '\nThe gate took %d s.\n' $((SECONDS - began))
  python3 tests/summary.py "$results"
  exit $?
}

# The three builds have some 11 GB; tests and the compiler's cache write, too. A disk
# that fills on the way makes errors that name anything but the disk.
needed_gb=14
enough_disk() {
  local free built
  free=$(df -Pk build | awk 'NR == 2 { print int($4 / 1000 / 1000) }')
  built=$(du -sk build | awk '{ print int($1 / 1000 / 1000) }')
  [ $((free + built)) -ge "$needed_gb" ] && return
  echo "The disk of $repo/build has $free GB free and build/ has $built GB, but" \
    "the gate needs $needed_gb GB in all: free $((needed_gb - free - built)) GB."
  return 1
}

make_venv() {
  local sum
  sum=$(sha256sum tests/requirements.txt)
  venv=$cache/venv/tests-${sum:0:12}
  [ -e "$venv/.complete" ] && return
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    "$venv/bin/pip" --disable-pip-version-check install -q --no-deps \
      -r tests/requirements.txt &&
    touch "$venv/.complete"
}

default_model() {
  local model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
  [ -s "$model" ] && return
  echo "The default model is missing ($model); run deploy/install_deps.sh." >&2
  return 1
}

lower=()  # put before builds beside which tests run
# build PRESET TARGETS...
build() {
  local log=$results/configure-$1.log
  if ! cmake --preset "$1" -DMILLRACE_TESTS=ON >"$log" 2>&1; then
    grep -A12 'CMake Error' "$log" || tail -n 20 "$log"
    return 1
  fi
  grep -E '^-- (oneDNN|CUDA|Tests):' "$log"
  "${lower[@]}" cmake --build "build/$1" -j "$(nproc)" --target "${@:2}"
}

# A suite is judged by its verdicts, case by case, not as a step. Which ones may run
# side by side: PROCESSORS in deploy/cmake/MillraceBuild.cmake.
# suite PRESET [LABEL]
suite() {
  local preset=$1 folder=$results/$1 start=$SECONDS pick=(-j "$(nproc)")
  [ $# -gt 1 ] && pick+=(-L "^$2\$")
  printf '\n== %s suites\n' "$preset"
  mkdir -p "$folder"
  GTEST_OUTPUT=xml:$folder/ ctest --test-dir "build/$preset" "${pick[@]}" \
    --output-junit "$folder/ctest.junit" --output-on-failure --no-tests=error
  printf '== %s suites: %d s\n' "$preset" $((SECONDS - start))
}

end_to_end() {
  compgen -G 'tests/e2e/test_*.py' >/dev/null || return
  local start=$SECONDS
  printf '\n== e2e\n'
  mkdir -p "$results/e2e"
  MILLRACE_BINARY=$repo/build/release/bin/millrace \
    timeout 1800 "$venv/bin/python" -B -m pytest tests/e2e -p no:cacheprovider -q \
    --junitxml "$results/e2e/pytest.xml"
  # 0 and 1 are told by the verdicts; anything else is pytest's own trouble.
  [ $? -le 1 ] || printf 'e2e: pytest could not run\tfailed\n' >>"$results/steps.tsv"
  printf '== e2e: %d s\n' $((SECONDS - start))
}

# fuzz NAME SECONDS: seeds are read from tests/fuzz/corpus, news stay in build.
fuzz() {
  local news=build/asan/corpus/$1 seeds=tests/fuzz/corpus/$1 dict=tests/fuzz/$1.dict
  local log=$results/fuzz-$1.log options=()
  mkdir -p "$news" build/asan/findings
  [ -d "$seeds" ] || seeds=
  [ -e "$dict" ] && options+=("-dict=$dict")
  if "build/asan/bin/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build/asan/findings/$1-" "${options[@]}" \
    "$news" ${seeds:+"$seeds"} >"$log" 2>&1; then
    tail -n 1 "$log"
    return
  fi
  tail -n 40 "$log"
  return 1
}

step "disk" enough_disk || finish
step "dependencies" deploy/install_deps.sh || finish
step "test environment" make_venv
step "default model" default_model

release_tests=
if step "build release" build release all; then
  { suite release; end_to_end; } >"$results/release.log" 2>&1 &
  release_tests=$!
  lower=(nice -n 19)
fi

asan_label=fast tsan_label=tsan fuzz_seconds=3
if $full; then asan_label='' tsan_label='' fuzz_seconds=120; fi
export UBSAN_OPTIONS=print_stacktrace=1

step "build asan" build asan "tests_${asan_label:-all}" fuzzers && asan=true
# Where much had to be compiled, the end-to-end tests are over by now, and these suites
# take their place beside the last build. Two sets at a time would be too many.
asan_tests=
if ${asan:-false} && [ -n "$release_tests" ] && ! kill -0 "$release_tests" 2>/dev/null; then
  suite asan ${asan_label:+"$asan_label"} >"$results/asan.log" 2>&1 &
  asan_tests=$!
fi
step "build tsan" build tsan "tests_${tsan_label:-all}" && tsan=true
wait
for log in release asan; do
  [ ! -e "$results/$log.log" ] || cat "$results/$log.log"
done

if ${asan:-false}; then
  [ -n "$asan_tests" ] || suite asan ${asan_label:+"$asan_label"}
  export -f step fuzz
  export results fuzz_seconds
  grep . build/asan/fuzzers.txt | xargs -P "$(nproc)" -I NAME \
    bash -c 'step "fuzz NAME" fuzz NAME "$fuzz_seconds"'
fi
${tsan:-false} && suite tsan ${tsan_label:+"$tsan_label"}
finish
