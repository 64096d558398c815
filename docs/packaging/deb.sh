#!/bin/sh
# Makes Debian packages of a tree that is built: docs/packaging/deb.sh TREE FOLDER VERSION. FOLDER gets debian/, made of
# docs/packaging/debian, and the packages beside it, in FOLDER/packages. DEBFULLNAME and DEBEMAIL are who makes them, else git's
# user. SOURCE_DATE_EPOCH is their date, else the last commit's.
set -eu
tree=$1 folder=$2 version=$3
command -v dh >/dev/null || { echo "deb: debhelper is not here: apt-get install debhelper" >&2; exit 1; }

name=${DEBFULLNAME:-$(git -C "$tree" config user.name || git -C "$tree" log -1 --format=%an)}
mail=${DEBEMAIL:-$(git -C "$tree" config user.email || git -C "$tree" log -1 --format=%ae)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$tree" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH TREE="$tree"

rm -rf "$folder/source" "$folder/packages"
mkdir -p "$folder/source" "$folder/packages"
cp -r "$tree/docs/packaging/debian" "$folder/source/debian"
mkdir -p "$folder/source/docs" && cp -r "$tree/docs/examples" "$folder/source/docs"
cd "$folder/source"
sed -i "s|@MAINTAINER@|$name <$mail>|" debian/control
{
        printf 'ranvier (%s) UNRELEASED; urgency=medium\n\n  * What changed is in CHANGELOG.md of the source.\n\n' "$version"
        printf ' -- %s <%s>  %s\n' "$name" "$mail" "$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" -R)"
} >debian/changelog
dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$folder/log" 2>&1 || { tail -n 40 "$folder/log" >&2; exit 1; }
mv ../*.deb "$folder/packages"
ls "$folder"/packages/*.deb
