#!/usr/bin/env bash
# Packs what a machine with a GPU needs to check and time the CUDA part without
# building: programs, the module, their libraries but glibc, tests' data, check.sh.
#
#   tests/gpu/pack.sh [--limit MIB] [--no-data] FILE.tar.xz [FOLDER]
#
# --no-data leaves out tests/data, where a checkout goes along (check.sh --sources).
# FOLDER holds the Python package gguf, which writes models of random weights; without
# it python3 is asked. A pack beyond --limit is an error, and stays. Of one GPU's
# machine code it is smaller: cmake -DCMAKE_CUDA_ARCHITECTURES=90. Build first
# (MILLRACE_BUILD names another folder than build/release):
#   cmake --build build/release --target millrace millrace_cuda cuda_device_test \
#     cuda_runner_test cuda_engine_test cuda_graph_test cuda_blas_test \
#     cuda_cudnn_test cuda_bench cuda_blas_bench cuda_graph_bench cuda_attention_bench
set -euo pipefail
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2; }
limit='' data=yes
while [[ ${1:-} = --* ]]; do
  case $1 in
    --no-data) data= ;;
    --limit)
      limit=${2:-}
      [[ $limit =~ ^[0-9]+$ ]] || usage
      shift ;;
    *) usage ;;
  esac
  shift
done
case ${1:-} in "" | -*) usage ;; esac
out=$(realpath "$1") packages=${2:-}
if [ -z "$packages" ]; then
  packages=$(python3 -c 'import gguf, os
print(os.path.dirname(os.path.dirname(gguf.__file__)))' 2>/dev/null) || true
fi
if [ ! -e "$packages/gguf/__init__.py" ]; then
  echo "pack.sh: there is no Python package gguf${packages:+ in $packages}: name the" \
    "folder that holds it (pip install --target FOLDER gguf)" >&2
  exit 2
fi
packages=$(realpath "$packages")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${MILLRACE_BUILD:-build/release}
# Those with the same parts side by side: half of what they are is in several.
programs=(libmillrace_cuda.so cuda_device_test cuda_runner_test cuda_engine_test
  cuda_blas_test cuda_graph_test cuda_cudnn_test cuda_bench cuda_blas_bench
  cuda_graph_bench cuda_attention_bench millrace)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,lib,python}
for program in "${programs[@]}"; do
  strip -o "$stage/bin/$program" "$build/bin/$program"
done

for program in "$stage"/bin/*; do ldd "$program"; done |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  { grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' || true; } |
  xargs -I LIB cp -L LIB "$stage/lib/"
if [ -n "$data" ]; then
  mkdir -p "$stage/tests/data"
  cp -r tests/data/{graph,graph_quantized,hf_*,lora_*} "$stage/tests/data/"
fi
cp tests/bench/llm/random_gguf.py tests/gpu/{check.sh,compare.py,serve.py} "$stage/"
cp -r "$packages/gguf" "$stage/python/"
find "$stage/python" -name __pycache__ -prune -exec rm -r {} +
# One dictionary over all of it, so that what several programs have is packed once.
tar -C "$stage" -c "${programs[@]/#/bin/}" lib python ${data:+tests} check.sh \
  compare.py serve.py random_gguf.py | xz -T1 --lzma2=preset=9,dict=256MiB >"$out"
bytes=$(stat -c %s "$out")
echo "$out: $(((bytes + 1048575) / 1048576)) MiB, unpacked $(du -sm "$stage" | cut -f 1) MiB"
if [ -n "$limit" ] && [ "$bytes" -gt $((limit * 1048576)) ]; then
  echo "pack.sh: that is more than $limit MiB" >&2
  exit 1
fi
