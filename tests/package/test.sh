#!/usr/bin/env bash
# Installs the Debian packages in FOLDER into a root of its own, uses them there as a stranger would, and removes them.
#
#   tests/package/test.sh FOLDER
#
# The root is this machine's with a layer over it that goes with the test: nothing of this machine changes. Where that is
# not permitted the packages are unpacked into a folder and used from there, which the test then says.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packages=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
ls "$packages"/skein_*.deb "$packages"/libskein-dev_*.deb >/dev/null

# In a mount namespace of its own, whose end unmounts everything.
layered() {
  mount -t tmpfs none "$root" && mkdir "$root"/{upper,work,all} || return 1
  mount -t overlay none -o lowerdir=/,upperdir="$root/upper",workdir="$root/work" "$root/all" || return 1
  for each in proc sys dev; do mount --rbind /$each "$root/all/$each" || return 1; done
}

bring() {  # what the test needs, into folder $1
  mkdir -p "$1"
  cp "$packages"/*.deb "$here/use.sh" "$here/../../examples/shortest.cpp" "$1/"
}

export -f layered bring
export root here packages
if reason=$(unshare --mount --propagation private bash -c layered 2>&1); then
  unshare --mount --propagation private bash -euc 'layered; bring "$root/all/package-test"
    chroot "$root/all" bash -euc "cd /package-test; dpkg -i ./*.deb >dpkg.log || { cat dpkg.log; exit 1; }
      bash use.sh /usr
      dpkg --purge libskein-dev skein >dpkg.log
      for each in /usr/bin/skein /usr/include/skein /usr/share/doc/skein /usr/share/doc/libskein-dev; do
        [ ! -e \$each ] || { echo \$each is left; exit 1; }
      done"'
  echo "installed, used and removed"
else
  echo "unpacked only, since no layer can be put over this machine's root: $(tail -n 1 <<<"$reason")"
  bring "$root/package-test"
  for each in "$packages"/*.deb; do dpkg-deb -x "$each" "$root"; done
  cd "$root/package-test" && bash use.sh "$root/usr"
  echo "unpacked and used"
fi
