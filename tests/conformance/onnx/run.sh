#!/usr/bin/env bash
# Runs the onnx package's backend tests and compares with expected_passes.txt.
#
#   tests/conformance/onnx/run.sh [--cases FOLDER] [--build FOLDER] [--update]
#
# Needs a Python (PYTHON=…) that has onnx 1.23.2, unless FOLDER holds the cases
# that dump_onnx_cases.py wrote. --update rewrites the list and the table of
# unsupported operators. The exit status is 1 when an expected pass is missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."

cases=build/onnx-cases build=build/release update=false
while [ $# -gt 0 ]; do
  case $1 in
    --cases) cases=$2; shift ;;
    --build) build=$2; shift ;;
    --update) update=true ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
here=tests/conformance/onnx
[ -e "$cases/index.json" ] ||
  "${PYTHON:-python3}" $here/dump_onnx_cases.py "$cases"
cmake --build "$build" --target onnx_cases
mkdir -p build/results
"$build/bin/onnx_cases" "$cases" >build/results/onnx.txt
options=()
if $update; then options=(--update); fi
python3 $here/report.py build/results/onnx.txt "$cases/index.json" "${options[@]}"
