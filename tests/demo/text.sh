#!/bin/sh
# Fetches the demo's text: the Jargon File 4.4.7 (public domain), 1.4 MB of English prose, from Debian's package
# dict-jargon. The package is unpacked, not installed: it would bring a dictionary server.
#   tests/demo/text.sh FILE
set -eu
out=$1
[ -s "$out" ] && exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
installed=/usr/share/dictd/jargon.dict.dz
if [ ! -e "$installed" ]; then
        (cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq dict-jargon) || {
                echo "demo: the text needs the package dict-jargon, which apt-get could not download; give DATA=FILE instead" >&2
                exit 1
        }
        dpkg-deb -x "$folder"/dict-jargon*.deb "$folder/package"
        installed=$folder/package/usr/share/dictd/jargon.dict.dz
fi
gzip -dc <"$installed" | sed 's/^ *//' >"$folder/text" # indentation is layout, not English
mv "$folder/text" "$out"
