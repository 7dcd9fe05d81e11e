#!/bin/bash
# Verifies configurations with Spin: correct ones must hold in every reachable state, broken ones
# must give a counterexample. Prints one line each and exits 1 on any surprise.
#
#   ./run_all.sh quick|fast|deep      default: fast
#
# quick: every broken one and the smaller correct ones, for each push. fast: all of the usual size.
# deep: larger ones too, which want some 10 GB of memory. JOBS (default: 2) run at once.
cd "$(dirname "$0")" || exit 1
set=${1:-fast}
case $set in quick) level=1 ;; fast) level=2 ;; deep) level=3 ;; *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
command -v spin >/dev/null && command -v gcc >/dev/null || { echo "spin and gcc are needed: apt-get install spin gcc" >&2; exit 1; }
[ $level = 1 ] && export OPT=-O1 # compiling takes longer than checking
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

n=0
# chk LEVEL WANT NAME FILE FLAGS...: WANT is 0 where the protocol must hold and 1 where it must break.
chk() {
	[ "$1" -le $level ] || return 0
	local want=$2 name=$3 file
	shift 3
	n=$((n + 1))
	file=$(printf '%s/%03d' "$out" $n)
	while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
	(
		line=$(./one.sh "$name" "$@")
		verdict=
		case $line in *"errors=$want "*) ;; *) verdict=SURPRISE ;; esac
		if [ "$want" = 0 ]; then case $line in *"incomplete=0"*) ;; *) verdict=${verdict:-INCOMPLETE} ;; esac; fi
		echo "[$want] $line $verdict" >"$file"
	) &
}
W=wake.pml L=lease.pml T=timers.pml

# The wake protocol.
chk 1 0 wake/2jobs-2drains-1slot $W
chk 1 0 wake/dup $W -DNJ=2 -DND=2 -DNS=1 -DMAXDUP=2
chk 1 0 wake/3jobs-dup $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1
chk 1 0 wake/cap1-2slots $W -DNJ=3 -DND=2 -DNS=2 -DCAP=1
chk 1 0 wake/stranger-row-lock $W -DNJ=2 -DND=2 -DNS=1 -DADM=1
chk 1 0 wake/frozen-lease-expiry $W -DNJ=2 -DND=2 -DNS=1 -DMAXEXP=2 -DMAXDUP=1
chk 1 0 wake/job-waits-for-job $W -DNJ=2 -DND=2 -DNS=2 -DCAP=1 -DDEP=1
chk 1 0 wake/kill2-lost1-enqkill1 $W -DNJ=2 -DND=2 -DNS=1 -DMAXKILL=2 -DMAXLOST=1 -DMAXEKILL=1
chk 1 0 wake/kill1-exp1-dup1-2slots $W -DNJ=2 -DND=2 -DNS=2 -DMAXKILL=1 -DMAXEXP=1 -DMAXDUP=1
chk 2 0 wake/alt-exit-honours-bell $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1 -DALT_EXIT_HONOURS_BELL
chk 1 0 wake/alt-look-only-if-owner $W -DNJ=2 -DND=2 -DNS=1 -DMAXEXP=1 -DMAXDUP=1 -DALT_RECHECK_ONLY_IF_OWNER
# Each step of it moved, merged or left out.
chk 1 1 B/naive-free-then-exit $W -DV_NAIVE
chk 1 1 B/look-then-free $W -DV_RECHECK_BEFORE_CLOSE
chk 1 1 B/free-where-not-exists $W -DV_COND_UPDATE
chk 1 1 B/ring-inside-insert-tx $W -DV_CHECK_BEFORE_COMMIT
chk 1 1 B/fire-before-commit $W -DV_TRIGGER_BEFORE_COMMIT
chk 1 1 B/answer-and-take-one-tx $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1 -DV_ONE_TX_START
chk 1 1 B/take-then-answer $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1 -DV_ACQUIRE_THEN_CLEAR
chk 1 1 B/answer-after-first-claim $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1 -DV_CLEAR_AFTER_SCAN
chk 1 1 B/no-answer-without-a-slot $W -DNJ=3 -DND=2 -DNS=1 -DMAXDUP=1 -DV_NO_CLEAR_ON_NOSLOT
chk 1 1 B/look-skips-locked-rows $W -DNJ=2 -DND=2 -DNS=1 -DADM=1 -DV_RECHECK_SKIP_LOCKED
chk 1 1 B/saturated-still-open $W -DNJ=2 -DND=2 -DNS=2 -DCAP=1 -DDEP=1 -DV_NO_FLIP
chk 1 1 B/busy-without-ring $W -DNJ=2 -DND=2 -DNS=2 -DCAP=1 -DDEP=1 -DV_FLIP_NO_RECHECK
# Leases and the fence.
chk 1 0 lease/attempts+token $L
chk 2 0 lease/3attempts $L -DMAXA=3 -DMAXEXP=3
chk 2 0 lease/3drains $L -DNW=3 -DMAXEXP=2 -DMAXKILL=1 -DMAXHB=1
chk 2 0 lease/attempts-only-no-failover $L -DV_FENCE_ATTEMPT
chk 2 0 lease/failover-lost-tail $L -DFAILOVER=1
chk 1 0 lease/snooze-decrements-but-token $L -DV_SNOOZE_DECREMENT
chk 1 0 lease/poison $L -DPOISON=1 -DNW=1 -DMAXKILL=4 -DMAXA=3 -DMAXSNOOZE=0
chk 1 1 B/no-fence $L -DV_FENCE_NONE
chk 1 1 B/fence-on-state-only $L -DV_FENCE_STATE
chk 1 1 B/attempts-only+failover $L -DV_FENCE_ATTEMPT -DFAILOVER=1
chk 1 1 B/attempts-only+snooze-decrements $L -DV_FENCE_ATTEMPT -DV_SNOOZE_DECREMENT
chk 1 1 B/reap-select-then-update $L -DV_REAP_NO_RECHECK
chk 1 1 B/attempts-counted-on-failure $L -DPOISON=1 -DNW=1 -DMAXKILL=4 -DMAXA=3 -DMAXSNOOZE=0 -DV_COUNT_ON_FAIL
# Alarms.
chk 1 0 alarms/2jobs $T
chk 1 0 alarms/lost-or-dead-enqueuer $T -DMAXFAULT=1 -DEARLY=1
chk 1 0 alarms/early $T -DEARLY=1
chk 1 0 alarms/alt-taken-down-by-id $T -DEARLY=1 -DALT_CLEAR_BY_ID
chk 1 1 B/taken-down-by-clock $T -DEARLY=1 -DV_CLEAR_BY_CLOCK
chk 1 1 B/never-taken-down $T -DEARLY=1 -DV_CLEAR_NEVER
chk 1 1 B/due-and-next-in-two-statements $T -DEARLY=1 -DV_TWO_NOWS
chk 1 1 B/not-set-again-on-exit $T -DEARLY=1 -DV_NO_REARM
# Larger.
chk 3 0 deep/3jobs-3drains-dup $W -DNJ=3 -DND=3 -DNS=1 -DMAXDUP=1
chk 3 0 deep/3jobs-3drains-2slots-dep $W -DNJ=3 -DND=3 -DNS=2 -DCAP=1 -DDEP=1
chk 3 0 deep/3jobs-kill1-lost1 $W -DNJ=3 -DND=2 -DNS=1 -DMAXKILL=1 -DMAXLOST=1
chk 3 0 deep/alarms-early-dup $T -DEARLY=1 -DMAXDUP=1

wait
cat "$out"/*
if grep -q 'SURPRISE$\|INCOMPLETE$' "$out"/*; then echo SURPRISES; exit 1; fi
echo "ALL AS EXPECTED: $n configurations"
