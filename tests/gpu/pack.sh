#!/usr/bin/env bash
# Packs what a machine with a GPU needs to check and time the CUDA part without
# building: programs, the module, their libraries but glibc, check.sh.
#
#   tests/gpu/pack.sh FILE.tar.xz [FOLDER]
#
# FOLDER holds the Python package gguf, for models of random weights. Build first:
#   cmake --build build/release --target millrace millrace_cuda cuda_device_test \
#     cuda_runner_test cuda_graph_test cuda_blas_test cuda_cudnn_test cuda_bench \
#     cuda_blas_bench cuda_graph_bench cuda_attention_bench
set -euo pipefail
case ${1:-} in
  "" | -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
out=$(realpath "$1") packages=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=(millrace libmillrace_cuda.so cuda_device_test cuda_runner_test
  cuda_graph_test cuda_blas_test cuda_cudnn_test cuda_bench cuda_blas_bench
  cuda_graph_bench cuda_attention_bench)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,lib,python,tests/data}
for program in "${programs[@]}"; do
  strip -o "$stage/bin/$program" "build/release/bin/$program"
done

for program in "$stage"/bin/*; do ldd "$program"; done |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' |
  xargs -I LIB cp -L LIB "$stage/lib/"
cp -r tests/data/graph "$stage/tests/data/"
cp tests/bench/llm/random_gguf.py tests/gpu/check.sh "$stage/"
[ -z "$packages" ] || cp -r "$packages/gguf" "$stage/python/"
tar -C "$stage" -cJf "$out" .
