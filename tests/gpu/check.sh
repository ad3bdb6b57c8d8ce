#!/usr/bin/env bash
# On a machine with a GPU, in the unpacked folder of pack.sh: tests of kernels,
# runner and graphs on the device, speed of kernels and models, the logits of a
# model beside those of the CPU. Some four minutes; needs a driver, and for
# models python3 with numpy. Each step has a limit of its own.
#
#   ./check.sh RESULTS [STEP...]     steps: device runner graph blas cudnn
#                                    sanitizer kernels models logits serve
#                                    (default: all)
#
# The step blas needs libcublasLt.so.13, or the file that MILLRACE_CUBLASLT names; cudnn
# needs libcudnn.so.9, or that of MILLRACE_CUDNN.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:?a folder for the results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
shift
steps=" ${*:-device runner graph blas cudnn kernels models logits serve sanitizer} "
cd "$here" || exit 1
module=$here/bin/libmillrace_cuda.so
failed=0

# step NAME SECONDS COMMAND...
step() {
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  timeout -k 2 "$limit" env LD_LIBRARY_PATH="$here/lib" \
    MILLRACE_CUDA_MODULE="$module" MILLRACE_TEST_CUDA_MODULE="$module" \
    "$@" >"$results/$name.log" 2>&1
  status=$?
  echo "== $name: exit status $status, $((SECONDS - began)) s"
  [ $status = 0 ] || failed=1
}
wanted() { [[ $steps = *" $1 "* ]]; }
verdicts() { grep -E 'FAILED|PASSED|SKIPPED|no GPU' "$results/$1.log" | sort -u | tail -n 30; }
model() { echo "$results/$1.gguf"; }

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if wanted models || wanted logits || wanted serve; then
  {
    PYTHONPATH=$here/python python3 random_gguf.py qwen3-0.6b "$(model small)" Q4_K
    PYTHONPATH=$here/python python3 random_gguf.py qwen3-8b "$(model large)" Q4_K
  } >"$results/random_gguf.log" 2>&1 &
fi
export MILLRACE_TEST_CUBLASLT=${MILLRACE_CUBLASLT:-libcublasLt.so.13}
export MILLRACE_TEST_CUDNN=${MILLRACE_CUDNN:-libcudnn.so.9}
for suite in device runner graph blas cudnn; do
  wanted $suite || continue
  step $suite 60 "bin/cuda_${suite}_test"
  verdicts $suite
done
# Products of cuBLASLt beside those of kernels: the tests are above.
if wanted blas; then
  step blas-speed 60 bin/cuda_blas_bench
  cat "$results/blas-speed.log"
fi
if wanted kernels; then
  step attention 40 bin/cuda_attention_bench
  cat "$results/attention.log"
  step kernels 60 bin/cuda_bench
  cat "$results/kernels.log"
  step graph-kernels 60 bin/cuda_graph_bench
  cat "$results/graph-kernels.log"
fi
wait

if wanted models; then
  step small 40 bin/millrace bench "$(model small)" --device cuda:0 \
    --batch 1,16,64 --prefill 512 --decode 64 --depth 0,8192
  tail -n 8 "$results/small.log"
  step large 60 bin/millrace bench "$(model large)" --device cuda:0 \
    --batch 1,16,64 --prefill 2048 --decode 32 --depth 0,8192 --reps 2
  tail -n 8 "$results/large.log"
  step long 60 bin/millrace bench "$(model small)" --device cuda:0 \
    --batch 1 --prefill 0 --decode 16 --depth 1024,16384,65536,131000 --reps 2
  tail -n 4 "$results/long.log"
fi
if wanted logits; then
  python3 -c 'import json, random
random.seed(1)
print(json.dumps([random.randrange(150000) for _ in range(200)]))' >"$results/ids.json"
  for dtype in f32 auto; do
    for device in cpu cuda:0; do
      step "logits-$dtype-$device" 40 bin/millrace logits "$(model small)" \
        --tokens "$results/ids.json" --raw --compute-dtype $dtype \
        --kv-cache-dtype f32 --device $device --out "$results/$dtype.$device"
    done
    python3 - "$results/$dtype" <<'P'
import sys
import numpy
cpu, gpu = (numpy.fromfile(f"{sys.argv[1]}.{device}", numpy.float32).reshape(200, -1)
            for device in ("cpu", "cuda:0"))
error = numpy.sqrt(((cpu - gpu) ** 2).mean() / (cpu ** 2).mean())
print(f"{sys.argv[1]}: RMS error {error:.2e} of RMS; "
      f"greatest equal {(cpu.argmax(1) == gpu.argmax(1)).mean():.3f}")
P
    rm -f "$results/$dtype".c*
  done
fi
if wanted serve; then
  step serve 60 python3 - "$here/bin/millrace" "$(model small)" <<'P'
import concurrent.futures, json, subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.argv[1], "serve", sys.argv[2], "--device", "cuda:0", "--port", "8765"])
def ask(seed):
    body = {"prompt": f"word{1000 + seed} word{2000 + seed}", "max_tokens": 48,
            "temperature": seed % 2 * 0.8, "seed": seed, "model": "small"}
    request = urllib.request.Request("http://127.0.0.1:8765/v1/completions",
                                     json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["text"]
for _ in range(200):
    try:
        urllib.request.urlopen("http://127.0.0.1:8765/v2/health/ready", timeout=1)
        break
    except OSError:
        time.sleep(0.1)
alone = [ask(seed) for seed in range(16)]
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    together = list(pool.map(ask, range(16)))
server.terminate()
print("the same answers alone and together:", alone == together)
sys.exit(alone != together or server.wait(20))
P
  tail -n 3 "$results/serve.log"
fi
if wanted sanitizer; then
  for tool in memcheck racecheck; do
    step $tool 100 compute-sanitizer --tool $tool --error-exitcode 9 \
      bin/cuda_device_test --gtest_filter='*Attention*:*Experts*:*Greatest*:*Norm*:*Q4_K*'
    tail -n 4 "$results/$tool.log"
  done
fi
rm -f "$(model small)" "$(model large)"
exit $failed
