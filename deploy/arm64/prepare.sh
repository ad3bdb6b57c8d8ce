#!/usr/bin/env bash
# Prepares a Debian 12 machine with an x86-64 CPU to build Millrace for 64-bit Arm
# and to run it under emulation: the cross compiler and qemu by apt, and the
# libraries of Arm in a folder of their own (a sysroot). Nothing of Arm is
# installed on this machine: packages are fetched and unpacked only. Says nothing
# when all is there.
#
#   deploy/arm64/prepare.sh
#   cmake --preset arm64 && cmake --build build/arm64 --target millrace
#
# Run deploy/install_deps.sh first: tools that run while building (protoc, the
# plugin of gRPC) are those of this machine. The sysroot is
# ${MILLRACE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/millrace}/deps/arm64-sysroot.
set -euo pipefail

tools=(g++-12-aarch64-linux-gnu qemu-user)
# As in install_deps.sh, less what is optional: MPI, oneDNN, xgrammar.
libraries=(
  libc6-dev libstdc++-12-dev
  libboost1.81-dev libboost-program-options1.81-dev libssl-dev
  libgrpc++-dev libprotobuf-dev
  prometheus-cpp-dev nlohmann-json3-dev libsimdjson-dev
  libspdlog-dev libfmt-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev
  libhwloc-dev libonnx-dev libedit-dev libcurl4-openssl-dev zlib1g-dev
  libturbojpeg0-dev libpng-dev libwebp-dev
  libsndfile1-dev libsoxr-dev libkissfft-dev
  libgtest-dev libgmock-dev
)

cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
sysroot=$cache/deps/arm64-sysroot

say() { echo "prepare: $*" >&2; }
fail() { say "$*"; exit 1; }

case ${1:-} in
  "") ;;
  -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "there is no option $1; see --help" ;;
esac
command -v apt-get >/dev/null || fail "there is no apt-get here"

missing=()
for package in "${tools[@]}"; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null |
    grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  say "installing ${missing[*]}"
  # Never at the price of a package that is there.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 --no-remove \
    install --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}; see above"
fi

[ -e "$sysroot/complete" ] && exit 0
mkdir -p "$cache/deps"
exec 9>"$cache/.arm64.lock"
flock 9 # another run may be at it
[ -e "$sysroot/complete" ] && exit 0

work=$cache/deps/.arm64.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,root}
: >"$work/state/status"
# An apt of its own: Arm is its only architecture, and nothing is installed.
cat >"$work/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
APT::Sandbox::User "$(id -un)";
Debug::NoLocking "true";
CONF
say "fetching the libraries of arm64 (80 MB)"
export APT_CONFIG=$work/apt.conf
apt-get -q update >"$work/log" 2>&1 &&
  apt-get -q -y --download-only --no-install-recommends \
    install "${libraries[@]}" >>"$work/log" 2>&1 || {
  tail -n 15 "$work/log" >&2
  fail "the packages could not be fetched; is the network there?"
}
for package in "$work"/cache/archives/*.deb; do
  dpkg -x "$package" "$work/root"
done
# Absolute links would lead out of the sysroot, to files of this machine.
find "$work/root" -type l -lname '/*' | while read -r link; do
  target=$(realpath -m --relative-to="$(dirname "$link")" \
    "$work/root$(readlink "$link")")
  ln -sfn "$target" "$link"
done
# Tools that run while building, which gRPC's package files look for here.
for tool in protoc grpc_cpp_plugin grpc_csharp_plugin grpc_node_plugin \
  grpc_objective_c_plugin grpc_php_plugin grpc_python_plugin \
  grpc_ruby_plugin; do
  place=$(command -v "$tool") || continue
  ln -sfn "$place" "$work/root/usr/bin/$tool"
done
: >"$work/root/complete"
rm -rf "$sysroot"
mv "$work/root" "$sysroot"
