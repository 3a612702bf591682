#!/bin/sh
# A copy of the state folder in one archive, made while TASC runs: backup.sh FOLDER
# Dagster's databases are copied by SQLite itself. A journal's torn end is cut when it is read; parts are renamed whole.
set -eu
umask 077
home=${TASC_HOME:?the state folder}
to=$1
name=tasc-$(date -u +%Y%m%dt%H%M%S)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/dagster"
cp "$home/dagster/dagster.yaml" "$work/dagster/"
find "$home/dagster" -name '*.db' | while read -r database; do
    copy=$work/dagster/${database#"$home/dagster/"}
    mkdir -p "$(dirname "$copy")"
    python3 -c 'import sqlite3, sys
with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as source, sqlite3.connect(sys.argv[2]) as copy:
    source.backup(copy)' "$database" "$copy"
done
# a file may grow or go while it is read (exit code 1); what a reader needs is checked by `tasc verify` after a restore
code=0
tar --warning=no-file-changed --warning=no-file-removed -cf "$work/$name.tar" -C "$home" --exclude ./dagster . || code=$?
[ "$code" -le 1 ]
tar -rf "$work/$name.tar" -C "$work" dagster
gzip -c "$work/$name.tar" >"$to/.$name.part"
mv "$to/.$name.part" "$to/$name.tar.gz"
printf '%s\n' "$to/$name.tar.gz"
