#!/usr/bin/env bash
# Lays out the root file system of the runtime image: the installed program, the
# shared libraries that its loader would take, and the few files that the C and
# terminal libraries read. Every file gets the time SOURCE_DATE_EPOCH.
#
#   deploy/container/stage.sh BUILD_FOLDER IMAGE_FOLDER
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:?name the build folder}
image=${2:?name the folder to fill}
epoch=${SOURCE_DATE_EPOCH:-0}

umask 022
mkdir -p "$image"
DESTDIR=$image cmake --install "$build" --prefix /usr --strip \
  --component program >/dev/null

# The loader keeps its place, which stands in the program; all else goes where it
# looks by default.
# Those that the program opens itself are installed above; what they need counts.
wheels=$(sed -n 's/^MILLRACE_XGRAMMAR_PREFIX:PATH=//p' "$build/CMakeCache.txt")
options=()
if [ -e "$image/usr/lib/millrace/libxgrammar_bindings.so" ]; then
  options=(--wheels "$wheels")
fi
"$repo/deploy/package/sbom.py" "$build/bin/millrace" "${options[@]}" --files |
  while read -r library; do
    case $library in
      */ld-linux*) target=$image$library ;;
      *) target=$image/usr${library#/usr} ;;
    esac
    install -D -m 755 "$(realpath "$library")" "$target"
  done

# Terminals that `millrace chat` can edit lines on.
for terminal in xterm xterm-256color screen screen-256color tmux-256color linux; do
  entry=/lib/terminfo/${terminal:0:1}/$terminal
  if [ -e "$entry" ]; then install -D -m 644 "$entry" "$image/usr$entry"; fi
done

mkdir -p "$image/etc" "$image/var/lib/millrace/models"
install -d -m 1777 "$image/tmp"
echo 'millrace:x:1000:1000:Millrace:/var/lib/millrace:/nonexistent' >"$image/etc/passwd"
echo 'millrace:x:1000:' >"$image/etc/group"
echo 'hosts: files dns' >"$image/etc/nsswitch.conf"

"$image$(readelf -p .interp "$image/usr/bin/millrace" | grep -o '/[^ ]*')" \
  --library-path "$(dirname "$(find "$image/usr/lib" -name libc.so.6)")" \
  "$image/usr/bin/millrace" --version
find "$image" -print0 | xargs -0 touch -h -d "@$epoch"
