#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_libraries.sh FOLDER: static twins, for shared libraries to link, of the libraries that Debian has no such archive of,
# in FOLDER/prefix; made once. Their sources are those of the installed packages: apt fetches them from its own archives, checks the signatures and
# applies Debian's patches. Headers stay the system's, so that objects of other builds serve (cmake/EpilogueTargets.cmake,
# EPILOGUE_STATIC_LIBRARIES). cpp-httplib comes as its header, without OpenSSL and brotli, for `epilogue serve`.
set -eu

mkdir -p "$1"
folder="$(cd "$1" && pwd)"
prefix="$folder/prefix"
scripts="$(cd "$(dirname "$0")" && pwd)"
[ ! -e "$folder/complete" ] || exit 0
command -v apt-get >/dev/null || {
  echo "wheel_libraries.sh: expected a Debian system, whose archives have the sources, got none" >&2
  exit 1
}

# Lists of source packages beside the system's own, which stay as they are.
mkdir -p "$folder/lists/partial" "$folder/sources" "$prefix/lib/pkgconfig" "$prefix/include"
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 'Origin: Debian' |
  sort -u >"$folder/sources.list"
source_packages() {
  apt-get --quiet=2 -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$folder/lists" -o APT::Sandbox::User=root "$@"
}
source_packages update
cd "$folder/sources"
rm -rf ./*/
# The version that is installed, where its headers are used.
wanted=cpp-httplib
for package in libfmt-dev libsimdjson-dev libisal-dev libhwy-dev libsqlite3-dev; do
  wanted="$wanted $(dpkg-query --show --showformat='${source:Package}=${source:Version}' "$package")"
done
# shellcheck disable=SC2086  # a list
source_packages source $wanted >/dev/null

# archive FOLDER NAME [options]: builds libNAME.a
archive() {
  source="$1"
  name="$2"
  shift 2
  cmake -S "$source" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON "$@" >"$source/log"
  cmake --build "$source/build" --target "$name" >>"$source/log"
  find "$source/build" -name "lib$name.a" -exec cp '{}' "$prefix/lib/" ';'
}
archive fmtlib-* fmt -DFMT_TEST=OFF -DFMT_DOC=OFF
archive simdjson-* simdjson -DSIMDJSON_DEVELOPER_MODE=OFF
archive highway-* hwy -DBUILD_TESTING=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
# Reading .json.gz asks for inflate alone.
make -C libisal-* -f Makefile.unx lib units=igzip CFLAGS_=-fPIC >libisal.log 2>&1
cp libisal-*/bin/isa-l.a "$prefix/lib/libisal.a"
# One source of all of SQLite, which its own scripts write. No extension is ever loaded.
cd sqlite3-*
./configure --disable-tcl >log 2>&1
make sqlite3.c >>log 2>&1
"${CC:-cc}" -O2 -fPIC -ffunction-sections -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c sqlite3.c -o sqlite3.o
ar crs "$prefix/lib/libsqlite3.a" sqlite3.o
cd ..
cp cpp-httplib-*/httplib.h "$prefix/include/"
cat >"$prefix/lib/pkgconfig/cpp-httplib.pc" <<END
Name: cpp-httplib
Description: HTTP server, as a header
Version: $(echo cpp-httplib-* | sed -E 's/^cpp-httplib-([0-9.]+).*/\1/')
Libs: -pthread
Cflags: -I$prefix/include
END
"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -fPIC -ffunction-sections -c "$scripts/wheel_glibc.c" -o "$prefix/lib/wheel_glibc.o"
touch "$folder/complete"
