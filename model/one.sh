#!/bin/bash
# one.sh NAME FILE FLAGS...: verifies one configuration with Spin and prints one line.
# OPT is gcc's optimisation, -O2 by default.
name=$1 file=$2
shift 2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$file" "$dir/m.pml" && cd "$dir" || exit 1
spin -a "$@" m.pml >spin.log 2>&1 || { echo "$name: spin failed: $(tail -1 spin.log)"; exit 1; }
gcc "${OPT:--O2}" -DSAFETY -DMEMLIM=12000 -DVECTORSZ=4096 -DCOLLAPSE -o pan pan.c >gcc.log 2>&1 || { echo "$name: gcc failed: $(head -1 gcc.log)"; exit 1; }
timeout 900 ./pan -m2000000 -w24 >pan.log 2>&1
field() { grep -oE "$1" pan.log | head -1 | grep -oE '[0-9.e+]+$'; }
errors=$(field 'errors: [0-9]+')
states=$(awk '/states, stored/ { print $1; exit }' pan.log)
depth=$(field 'depth reached [0-9]+')
seconds=$(field 'elapsed time [0-9.e+]+')
what=$(grep -E '^pan:[0-9]+:' pan.log | head -1)
incomplete=$(grep -c 'Search not completed\|out of memory\|max search depth' pan.log)
printf '%-34s errors=%s states=%s depth=%s time=%ss incomplete=%s %s\n' "$name" "$errors" "$states" "$depth" "$seconds" "$incomplete" "$what"
