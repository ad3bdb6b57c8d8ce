#!/usr/bin/env bash
# On a machine with a GPU, in the unpacked folder of pack.sh: tests of kernels, of
# language models and graphs on the device, speed of models and kernels, logits
# beside those of the CPU, answers of a server. What is worth most comes first.
#
#   ./check.sh [--budget SECONDS] [--sources FOLDER] RESULTS [STEP...]
#
#     steps, in their order (default: all but cudnn-all):
#       device runner graph engine models logits serve kernels blas cudnn
#       sanitizer cudnn-all
#
# --sources: a checkout whose tests/data are read, for a pack without them.
# A line is printed for each step. RESULTS has summary.txt, these lines, and
# results.tar.xz, all logs; both are written anew behind each step. Each step has
# a limit; one that does not fit into what is left of the budget (MILLRACE_BUDGET,
# else 540) is not run. Exit status: 0, all passed; 1, a step failed; 3, no GPU
# can serve; 4, none failed, but some were not run.
#
# models, logits and serve need python3 with numpy and yaml. blas needs cuBLASLt,
# cudnn cuDNN: the files that MILLRACE_CUBLASLT and MILLRACE_CUDNN name, else those
# that ldconfig, python3's packages or /usr/local/cuda have. The driver's libraries
# are also looked for in MILLRACE_DRIVER_FOLDERS (folder:folder). Models are written
# to a new folder in TMPDIR, 6 GB.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2; }
budget=${MILLRACE_BUDGET:-540}
sources=
while [[ ${1:-} = --* ]]; do
  case $1 in
    --budget) budget=${2:-} ;;
    --sources) sources=$(realpath "${2:-}") || usage ;;
    *) usage ;;
  esac
  shift 2 || usage
done
[[ $budget =~ ^[0-9]+$ ]] || usage
case ${1:-} in "" | -*) usage ;; esac
mkdir -p "$1" || exit 2
results=$(cd "$1" && pwd)
shift
all="device runner graph engine models logits serve kernels blas cudnn sanitizer"
for name in "$@"; do
  [[ " $all cudnn-all " = *" $name "* ]] || { echo "there is no step $name" >&2; usage; }
done
steps=" ${*:-$all} "
cd "$here" || exit 2
[ -z "$sources" ] || [ -e tests ] || ln -s "$sources/tests" tests
if [ ! -d tests/data ]; then
  echo "there are no tests/data here; name a checkout with --sources" >&2
  exit 2
fi

work=$(mktemp -d)
logs=$work/logs
mkdir "$logs"
background=
# Interrupted, it ends what it runs: a signal that timeout gets goes to all of the
# group that timeout made.
end() {
  local pid
  for pid in $(jobs -pr); do kill "$pid" 2>/dev/null; done
  wait  # and nothing writes below $work
  keep
  rm -rf "$work"
}
trap end EXIT
trap 'exit 143' TERM INT HUP

# ---- what is where ----

drivers=${MILLRACE_DRIVER_FOLDERS:-/usr/local/nvidia/lib64:/usr/local/nvidia/lib}
PATH=$PATH:/sbin:/usr/sbin:/usr/local/nvidia/bin:/usr/local/cuda/bin

# The first file of these names, or nothing.
library() {
  local name found
  for name in "$@"; do
    found=$(ldconfig -p 2>/dev/null | awk -v n="$name" '$1 == n {print $NF; exit}')
    [ -n "$found" ] || found=$(python3 -c '
import glob, sys
found = [file for folder in sys.path
         for file in glob.glob(folder + "/nvidia/*/lib/" + sys.argv[1])]
print(*found[:1])' "$name" 2>/dev/null)
    [ -n "$found" ] || found=$(compgen -G "/usr/local/cuda/lib64/$name" | head -n 1)
    [ -z "$found" ] || { echo "$found"; return; }
  done
}
cublaslt=${MILLRACE_CUBLASLT:-$(library libcublasLt.so.13 libcublasLt.so.12)}
cudnn=${MILLRACE_CUDNN:-$(library libcudnn.so.9)}
unset MILLRACE_TEST_CUBLASLT MILLRACE_TEST_CUDNN
[ -z "$cublaslt" ] || export MILLRACE_CUBLASLT=$cublaslt MILLRACE_TEST_CUBLASLT=$cublaslt
[ -z "$cudnn" ] || export MILLRACE_CUDNN=$cudnn MILLRACE_TEST_CUDNN=$cudnn
vendors=
for file in "$cublaslt" "$cudnn"; do
  [[ $file != */* ]] || vendors+=:$(dirname "$file")
done

# Before our own programs, and no others: their libraries are not this machine's.
module=${MILLRACE_CUDA_MODULE:-$here/bin/libmillrace_cuda.so}
ours=(env "MILLRACE_CUDA_MODULE=$module" "MILLRACE_TEST_CUDA_MODULE=$module"
  "LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}:$drivers$vendors")

# ---- steps ----

failed=0 missed=0
say() {
  echo "$*"
  echo "$*" >>"$work/summary.txt"
}
# Puts what there is so far into RESULTS.
keep() {
  [ ! -e "$work/summary.txt" ] || cp "$work/summary.txt" "$results/summary.txt"
  tar -C "$work" -cJf "$work/new.tar.xz" logs &&
    mv -f "$work/new.tar.xz" "$results/results.tar.xz"
}
wanted() { [[ $steps = *" $1 "* ]]; }
miss() {  # NAME WHY
  say "== $1: not run: $2"
  missed=1
}
# step NAME SECONDS COMMAND...: whether it passed.
step() {
  local name=$1 limit=$2 began=$SECONDS left=$((budget - SECONDS)) log status verdict tests
  shift 2
  if [ $((2 * left)) -lt "$limit" ]; then
    miss "$name" "$left s of the budget are left, it may take $limit s"
    return 1
  fi
  [ "$left" -ge "$limit" ] || limit=$left
  log=$logs/$name.log
  # Waited for, so that a signal is heeded at once.
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
  wait $!
  status=$?
  verdict=passed
  case $status in
    0) ;;
    124 | 137) verdict="FAILED: ended after its limit of $limit s" ;;
    *) verdict="FAILED: exit status $status" ;;
  esac
  tests=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1 passed/p
    s/^\[  SKIPPED \] \([0-9]*\) test.*/\1 skipped/p
    s/^\[  FAILED  \] \([0-9]*\) test.*/\1 failed/p' "$log" | paste -sd, -)
  say "== $name: $verdict, $((SECONDS - began)) s${tests:+ ($tests)}"
  if [ $status != 0 ]; then
    failed=1
    # Names of tests that failed, or the one that ended it, or the last words.
    { grep -aE '^\[  FAILED  \] [^ ]+\.' "$log" | sed 's/,\{0,1\} [w(].*//' | sort -u |
      sed -n '1,12p;13s/.*/   .../p' | grep . || grep -a '^\[ RUN ' "$log" | tail -n 1 | grep . ||
      tail -n 2 "$log"; } | cut -c1-160 | while IFS= read -r line; do say "   $line"; done
  fi
  keep
  [ $status = 0 ]
}
# Lines of a step's log that are worth a look.
show() { tail -n "$2" "$logs/$1.log" 2>/dev/null | cut -c1-160 | while IFS= read -r line; do say "   $line"; done; }
model() { echo "$work/$1.gguf"; }

echo "no nvidia-smi" >"$logs/nvidia-smi.log"
! command -v nvidia-smi >/dev/null ||
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader \
    >"$logs/nvidia-smi.log" 2>&1
say "$(head -n 1 "$logs/nvidia-smi.log")"
say "cuBLASLt: ${cublaslt:-none}; cuDNN: ${cudnn:-none}"

# A kernel, before all else: where none runs, nothing below says anything. (Where
# all tests are skipped at once, gtest counts them as passed.)
if ! timeout -k 5 60 "${ours[@]}" bin/cuda_device_test --gtest_filter='Head.*' \
  >"$logs/probe.log" 2>&1 || ! grep -aq '^\[       OK \] Head\.' "$logs/probe.log"; then
  say "NO GPU CAN SERVE HERE, nothing was checked:"
  { grep -a 'no GPU can serve' "$logs/probe.log" || tail -n 3 "$logs/probe.log"; } |
    sort -u | head -n 3 | while IFS= read -r line; do say "   $line"; done
  exit 3
fi

no_models=
if wanted models || wanted logits || wanted serve; then
  export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH}
  if python3 -c 'import gguf, numpy' >"$logs/random_gguf.log" 2>&1; then
    large=
    ! wanted models || large=$(model large)
    timeout -k 5 300 bash -c 'python3 random_gguf.py qwen3-0.6b "$1" Q4_K
      [ -z "$2" ] || python3 random_gguf.py qwen3-8b "$2" Q4_K' \
      - "$(model small)" "$large" >"$logs/random_gguf.log" 2>&1 &
    background=$!
  else
    no_models="python3 cannot import gguf: $(tail -n 1 "$logs/random_gguf.log")"
  fi
fi
# with_model NAME STEP...: false, and said, where there is none.
with_model() {
  local file=$1 name why=$no_models
  shift
  if [ -n "$background" ]; then
    wait "$background"
    background=
  fi
  [ -n "$why" ] || [ -s "$(model "$file")" ] ||
    why="no model was written: $(tail -n 1 "$logs/random_gguf.log")"
  [ -n "$why" ] || return 0
  for name in "$@"; do miss "$name" "$why"; done
  return 1
}

for suite in device runner graph engine; do
  ! wanted $suite || step $suite 90 "${ours[@]}" "bin/cuda_${suite}_test"
done

if wanted models && with_model large models; then
  step small 40 "${ours[@]}" bin/millrace bench "$(model small)" --device cuda:0 \
    --batch 1,16,64 --prefill 512 --decode 64 --depth 0,8192 && show small 8
  step large 60 "${ours[@]}" bin/millrace bench "$(model large)" --device cuda:0 \
    --batch 1,16,64 --prefill 2048 --decode 32 --depth 0,8192 --reps 2 && show large 8
  step long 60 "${ours[@]}" bin/millrace bench "$(model small)" --device cuda:0 \
    --batch 1 --prefill 0 --decode 16 --depth 1024,16384,65536,131000 --reps 2 && show long 4
fi
if wanted logits && with_model small logits; then
  python3 -c 'import json, random
random.seed(1)
print(json.dumps([random.randrange(150000) for _ in range(200)]))' >"$work/ids.json"
  logits() {  # DTYPE DEVICE OUT
    step "logits-$1-${2%:*}" 40 "${ours[@]}" bin/millrace logits "$(model small)" \
      --tokens "$work/ids.json" --raw --compute-dtype "$1" \
      --kv-cache-dtype f32 --device "$2" --out "$3"
  }
  # Beside f32 on cores, within what cuda_runner_test allows these precisions.
  if logits f32 cpu "$work/cpu"; then
    for limit in f32=1e-4 auto=2e-2; do
      dtype=${limit%=*}
      logits "$dtype" cuda:0 "$work/gpu" && step "logits-$dtype" 20 \
        python3 compare.py "$work/cpu" "$work/gpu" 200 "${limit#*=}" &&
        show "logits-$dtype" 1
    done
  fi
  rm -f "$work"/[cg]pu
fi
if wanted serve && with_model small serve; then
  step serve 90 python3 serve.py "$(model small)" -- "${ours[@]}" bin/millrace
  show serve 1
fi
if wanted kernels; then
  step attention 40 "${ours[@]}" bin/cuda_attention_bench
  step kernels 60 "${ours[@]}" bin/cuda_bench
  step graph-kernels 60 "${ours[@]}" bin/cuda_graph_bench
fi
# Products of cuBLASLt, and then beside those of kernels.
if wanted blas; then
  if [ -z "$cublaslt" ]; then
    miss blas "there is no cuBLASLt; name it with MILLRACE_CUBLASLT"
  else
    step blas 90 "${ours[@]}" bin/cuda_blas_test
    step blas-speed 60 "${ours[@]}" bin/cuda_blas_bench
  fi
fi
# Most engines are compiled when they are built: one precision, then all.
for name in cudnn cudnn-all; do
  wanted $name || continue
  if [ -z "$cudnn" ]; then
    miss $name "there is no cuDNN; name it with MILLRACE_CUDNN"
  elif [ $name = cudnn ]; then
    step cudnn 180 "${ours[@]}" bin/cuda_cudnn_test --gtest_filter='*f16:Cudnn.*-*bf16'
  else
    step cudnn-all 400 "${ours[@]}" bin/cuda_cudnn_test
  fi
done
if wanted sanitizer; then
  for tool in memcheck racecheck; do
    if ! command -v compute-sanitizer >/dev/null; then
      miss $tool "there is no compute-sanitizer"
      continue
    fi
    step $tool 100 compute-sanitizer --tool $tool --error-exitcode 9 \
      --target-processes all "${ours[@]}" bin/cuda_device_test \
      --gtest_filter='*Attention*:*Experts*:*Greatest*:*Norm*:*Q4_K*'
    show $tool 1
  done
fi

[ $failed = 0 ] || exit 1
[ $missed = 0 ] || exit 4
