#!/usr/bin/env bash
# Builds the container image with buildah, or with docker where buildah is
# missing.
#
#   deploy/container/build.sh (--base IMAGE | --rootfs FOLDER | --built FOLDER)
#       [--tag NAME] [--model | --cuda FILE] [--builder buildah|docker]
#       [--jobs N] [-- MORE OPTIONS…]
#
#   --base IMAGE     a Debian 12 image to compile in; no name is built in
#   --rootfs FOLDER  the same, unpacked: debootstrap --variant=minbase bookworm FOLDER
#   --built FOLDER   takes the program from this build folder instead of compiling;
#                    its system, a Debian 12, gives the shared libraries
#   --tag NAME       name of the image (default localhost/millrace:VERSION)
#   --model          the image with the default model
#   --cuda FILE      the image with the module for GPUs: build/release/bin/
#                    libmillrace_cuda.so of a build of the same commit
#   MORE OPTIONS     go to the builder, for instance, with buildah,
#                    --volume $HOME/.cache/ccache:/tmp/ccache and
#                    --volume $HOME/.cache/millrace:/cache
#
# Compilation, packages and the model need the network; the result does not hold
# the base. Layers are reproducible: the same commit, base and packages give the
# same digests. The time in all files is that of the commit (SOURCE_DATE_EPOCH).
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
base=${MILLRACE_BASE_IMAGE:-} rootfs= tag= target=runtime builder= module= built= jobs=$(nproc)
fail() { echo "build.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --base) base=${2:?--base needs the name of an image}; shift ;;
    --rootfs) rootfs=${2:?--rootfs needs a folder}; shift ;;
    --built) built=$(realpath "${2:?--built needs a build folder}"); shift ;;
    --tag) tag=${2:?--tag needs a name}; shift ;;
    --model) target=default-model ;;
    --cuda)
      target=cuda
      module=$(realpath "${2:?--cuda needs the file of the module}")
      shift
      ;;
    --builder) builder=${2:?--builder needs buildah or docker}; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h | --help) sed -n '2,26s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    *) fail "there is no option $1; see --help" ;;
  esac
  shift
done
[ -n "$base$rootfs$built" ] ||
  fail "name a Debian 12 to compile in: --base IMAGE or --rootfs FOLDER; or --built FOLDER"
if [ -z "$builder" ]; then
  builder=$(basename "$(command -v buildah || command -v docker)") ||
    fail "neither buildah nor docker is installed"
fi

version=$(sed -n 's/^project(millrace VERSION \([0-9.]*\).*/\1/p' "$repo/CMakeLists.txt")
revision=$(git -C "$repo" rev-parse HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$repo" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
tag=${tag:-localhost/millrace:$version}

# The files that git knows or would add, and no build folder.
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
if git -C "$repo" rev-parse >/dev/null 2>&1; then
  (cd "$repo" && git ls-files -coz --exclude-standard --deduplicate |
    tar --null --ignore-failed-read -cf - -T - 2>/dev/null) | tar -C "$context" -xf -
else
  tar -C "$repo" --exclude=./build -cf - . | tar -C "$context" -xf -
fi

# Then the first stage holds what another build would have left there.
if [ -n "$built" ]; then
  "$repo/deploy/container/stage.sh" "$built" "$context/staged/image"
  if [ "$target" = default-model ]; then
    install -D -m 644 -t "$context/staged/model/var/lib/millrace/models" \
      "${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}/models/SmolLM2-135M-Instruct.Q4_1.gguf"
  fi
  sed -i -e '/ AS build$/,/^$/c\FROM scratch AS build\nCOPY staged/ /\n' \
    "$context/deploy/container/Containerfile"
  base=scratch
fi
if [ -n "$module" ]; then
  install -D -m 755 -t "$context/deploy/container/cuda" "$module"
  touch -d "@$SOURCE_DATE_EPOCH" "$context"/deploy/container/cuda/*
fi

arguments=(
  --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"
  --build-arg "VERSION=$version"
  --build-arg "REVISION=$revision"
  --build-arg "CREATED=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
  --build-arg "JOBS=$jobs"
  --target "$target" --tag "$tag"
  -f "$context/deploy/container/Containerfile"
)
case $builder in
  buildah)
    export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
    if [ -n "$rootfs" ]; then
      base=localhost/millrace-base:1
      tar -C "$rootfs" -c . | podman import --quiet - "$base" >/dev/null
    fi
    # OCI's own format has no field for a health check, docker's has.
    buildah bud --format docker --timestamp "$SOURCE_DATE_EPOCH" \
      --build-arg "BASE_IMAGE=$base" "${arguments[@]}" "$@" "$context"
    ;;
  docker)
    if [ -n "$rootfs" ]; then
      base=millrace-base:1
      tar -C "$rootfs" -c . | docker import - "$base" >/dev/null
    fi
    docker buildx build --output type=docker,rewrite-timestamp=true \
      --build-arg "BASE_IMAGE=$base" "${arguments[@]}" "$@" "$context"
    ;;
  *) fail "--builder is '$builder'; it may be buildah or docker" ;;
esac
echo "built $tag"
