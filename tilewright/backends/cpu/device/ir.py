"""LLVM IR of the launcher: run a grid of programs on a team of threads.

The text is scalar, has no relocation against anything outside itself (entry points of the
OpenMP runtime and of pthreads come in through tables of addresses), and is therefore the
same for every kernel. Offsets of the tables are the constants below. Emitted shape:

    tw_launch(block):  total = gx*gy*gz;  reserve threads;  serial call, or team(job, n)
    tw_run(job, tid):  for k in 0..n:  range = (tid + k) mod n          # own first, then steal
                           while stop.state != stopped and (s = atomic range.next += chunk) < range.end:
                               programs(s, min(s + chunk, range.end))
    tw_programs(...):  while (lo = kernel(lo, hi, args, arena + tid*stride, stop)) < hi and stop.poll says go on

Launches of Python's main thread share one stop word, which `interrupt` sets; all others get one that stays zero.

A team can cost more than it gives: its threads wait for each other before they begin and when they are done, and one
that has lost its processor to another process keeps all of them for milliseconds. So each thread says how long it
worked, and where the launch took longer than all of that together, the caller alone would have been faster. Then the
next launch of the kernel, or 2, 4, up to `MOST_ALONE` of them if that goes on, has no team; each team that was worth it
halves their number.
"""

from __future__ import annotations

from tilewright.backends.cpu.abi import RUNNING, STOP_POLL, STOPPED
from tilewright.backends.cpu.device.counting import COUNTING, THREADS
from tilewright.backends.cpu.device.processor import processor_ir

# The block is what Python packs for one launch: three words, then the slots of the kernel ABI.
BLOCK_RECORD, BLOCK_THREADS, BLOCK_ARENA, BLOCK_ARGS = 0, 8, 16, 24

# The record describes a loaded kernel.
RECORD_KERNEL, RECORD_GRID, RECORD_STRIDE, RECORD_RUNTIME = 0, 8, 16, 24
RECORD_ALONE, RECORD_STEPS, RECORD_TOTAL = 32, 40, 48  # launches to come without a team, how many they were, programs
RECORD_IN_ORDER = 56  # 1: programs are taken one by one, by all threads from one range
RECORD_BYTES = 64

# The runtime is one per process: which team function runs a job, and the addresses it calls.
RUNTIME_TEAM, RUNTIME_FORK, RUNTIME_THREAD_NUM, RUNTIME_PUSH, RUNTIME_GTID, RUNTIME_POOL = 0, 8, 16, 24, 32, 40
RUNTIME_STOP, RUNTIME_SELF, RUNTIME_MAIN = 48, 56, 64
RUNTIME_BUSY, RUNTIME_NEVER = 128, 192
RUNTIME_BYTES = 256

# The pool is the team of our own threads; each word that several threads write has its cache line.
POOL_GENERATION, POOL_ENTRY, POOL_DONE, POOL_OWNER, POOL_SLEEPERS = 0, 128, 256, 384, 512
POOL_JOB, POOL_TEAM, POOL_SPIN, POOL_STOP = 640, 648, 656, 664
POOL_LOCK_FN, POOL_UNLOCK_FN, POOL_WAIT_FN, POOL_WAKE_FN, POOL_YIELD_FN = 768, 776, 784, 792, 800
POOL_MUTEX, POOL_CONDITION = 896, 1024
POOL_BYTES = 1152

MAX_TEAM = 512
"""Largest team of one launch: its ranges (128 bytes each) live on the caller's stack."""

MOST_ALONE = 16

EXPORTS = (
    *COUNTING,
    "tw_launch",
    "tw_team_gomp",
    "tw_team_kmpc",
    "tw_team_pool",
    "tw_pool_worker",
)

_LAUNCH = f"""
define void @tw_launch(ptr %block) nounwind {{
entry:
  %record.p = getelementptr i8, ptr %block, i64 {BLOCK_RECORD}
  %record = load ptr, ptr %record.p
  %threads.p = getelementptr i8, ptr %block, i64 {BLOCK_THREADS}
  %threads = load i64, ptr %threads.p
  %arena.p = getelementptr i8, ptr %block, i64 {BLOCK_ARENA}
  %arena = load ptr, ptr %arena.p
  %args = getelementptr i8, ptr %block, i64 {BLOCK_ARGS}
  %runtime.p = getelementptr i8, ptr %record, i64 {RECORD_RUNTIME}
  %runtime = load ptr, ptr %runtime.p
  %stop = call ptr @tw_stop_of(ptr %runtime)
  %kernel.p = getelementptr i8, ptr %record, i64 {RECORD_KERNEL}
  %kernel = load ptr, ptr %kernel.p
  %grid.p = getelementptr i8, ptr %record, i64 {RECORD_GRID}
  %grid.offset = load i64, ptr %grid.p
  %gx.p = getelementptr i8, ptr %args, i64 %grid.offset
  %gx = load i64, ptr %gx.p
  %gy.p = getelementptr i8, ptr %gx.p, i64 8
  %gy = load i64, ptr %gy.p
  %gz.p = getelementptr i8, ptr %gx.p, i64 16
  %gz = load i64, ptr %gz.p
  %plane = mul i64 %gx, %gy
  %total = mul i64 %plane, %gz
  %alone = icmp sle i64 %threads, 1
  br i1 %alone, label %serial, label %divide

divide:                                   ; no more threads than chunks
  %pieces = mul i64 %threads, 8
  %share = udiv i64 %total, %pieces
  %in.order.p = getelementptr i8, ptr %record, i64 {RECORD_IN_ORDER}
  %in.order.word = load i64, ptr %in.order.p
  %in.order = icmp ne i64 %in.order.word, 0
  %share.1 = select i1 %in.order, i64 1, i64 %share
  %chunk = call i64 @llvm.umax.i64(i64 %share.1, i64 1)
  %total.up = add i64 %total, %chunk
  %total.up1 = sub i64 %total.up, 1
  %chunks = udiv i64 %total.up1, %chunk
  %wish.0 = call i64 @llvm.umin.i64(i64 %threads, i64 %chunks)
  %wish = call i64 @llvm.umin.i64(i64 %wish.0, i64 {MAX_TEAM})
  %team.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_TEAM}
  %team = load ptr, ptr %team.p
  %no.team = icmp eq ptr %team, null
  %one = icmp ule i64 %wish, 1
  %stay = or i1 %no.team, %one
  br i1 %stay, label %serial, label %recall

recall:                                   ; a count that two threads change at once is only a little off
  %alone.p = getelementptr i8, ptr %record, i64 {RECORD_ALONE}
  %alone.left = load atomic i64, ptr %alone.p monotonic, align 8
  %alone.total.p = getelementptr i8, ptr %record, i64 {RECORD_TOTAL}
  %alone.total = load atomic i64, ptr %alone.total.p monotonic, align 8
  %late.before = icmp sgt i64 %alone.left, 0
  %no.larger = icmp ule i64 %total, %alone.total
  %by.itself = and i1 %late.before, %no.larger
  br i1 %by.itself, label %spend, label %reserve

spend:
  %alone.less = sub i64 %alone.left, 1
  store atomic i64 %alone.less, ptr %alone.p monotonic, align 8
  br label %serial

reserve:                                  ; launches in flight share the threads between them
  %busy = getelementptr i8, ptr %runtime, i64 {RUNTIME_BUSY}
  %in.use = atomicrmw add ptr %busy, i64 %wish monotonic
  %left = sub i64 %threads, %in.use
  %left.1 = call i64 @llvm.smax.i64(i64 %left, i64 1)
  %n = call i64 @llvm.umin.i64(i64 %left.1, i64 %wish)
  %unused = sub i64 %wish, %n
  atomicrmw sub ptr %busy, i64 %unused monotonic
  %n.one = icmp eq i64 %n, 1
  br i1 %n.one, label %crowded, label %parallel

crowded:
  call void @tw_programs(ptr %kernel, i64 0, i64 %total, ptr %args, ptr %arena, ptr %stop)
  atomicrmw sub ptr %busy, i64 1 monotonic
  ret void

parallel:
  %stride.p = getelementptr i8, ptr %record, i64 {RECORD_STRIDE}
  %stride = load i64, ptr %stride.p
  %thread.num.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_THREAD_NUM}
  %thread.num = load ptr, ptr %thread.num.p
  %ranges.bytes = shl i64 %n, 7
  %ranges = alloca i8, i64 %ranges.bytes, align 128
  %job = alloca %job.t, align 64
  %job.1 = getelementptr %job.t, ptr %job, i32 0, i32 1
  %job.2 = getelementptr %job.t, ptr %job, i32 0, i32 2
  %job.3 = getelementptr %job.t, ptr %job, i32 0, i32 3
  %job.4 = getelementptr %job.t, ptr %job, i32 0, i32 4
  %job.5 = getelementptr %job.t, ptr %job, i32 0, i32 5
  %job.6 = getelementptr %job.t, ptr %job, i32 0, i32 6
  %job.7 = getelementptr %job.t, ptr %job, i32 0, i32 7
  %job.8 = getelementptr %job.t, ptr %job, i32 0, i32 8
  store ptr %kernel, ptr %job
  store ptr %args, ptr %job.1
  store ptr %arena, ptr %job.2
  store i64 %stride, ptr %job.3
  store i64 %chunk, ptr %job.4
  store i64 %n, ptr %job.5
  store ptr %ranges, ptr %job.6
  store ptr %thread.num, ptr %job.7
  store ptr %stop, ptr %job.8
  br label %fill

fill:                                     ; home ranges start at multiples of the chunk; in order the first has all
  %t = phi i64 [ 0, %parallel ], [ %t.1, %fill ]
  %t.1 = add i64 %t, 1
  %lo.scaled = mul i64 %chunks, %t
  %lo.chunk = udiv i64 %lo.scaled, %n
  %lo.home = mul i64 %lo.chunk, %chunk
  %lo.behind = mul i64 %t, %total
  %lo = select i1 %in.order, i64 %lo.behind, i64 %lo.home
  %hi.scaled = mul i64 %chunks, %t.1
  %hi.chunk = udiv i64 %hi.scaled, %n
  %hi.full = mul i64 %hi.chunk, %chunk
  %hi.home = call i64 @llvm.umin.i64(i64 %hi.full, i64 %total)
  %hi = select i1 %in.order, i64 %total, i64 %hi.home
  %range.offset = shl i64 %t, 7
  %range = getelementptr i8, ptr %ranges, i64 %range.offset
  store i64 %lo, ptr %range, align 128
  %range.end = getelementptr i8, ptr %range, i64 8
  store i64 %hi, ptr %range.end
  %range.worked = getelementptr i8, ptr %range, i64 16
  store i64 0, ptr %range.worked
  %filled = icmp eq i64 %t.1, %n
  br i1 %filled, label %go, label %fill

go:
  %begin = call i64 @tw_ticks()
  call void %team(ptr %runtime, ptr %job, i64 %n)
  %end = call i64 @tw_ticks()
  atomicrmw sub ptr %busy, i64 %n monotonic
  br label %sum

sum:
  %s = phi i64 [ 0, %go ], [ %s.1, %sum ]
  %worked = phi i64 [ 0, %go ], [ %worked.1, %sum ]
  %s.offset = shl i64 %s, 7
  %s.range = getelementptr i8, ptr %ranges, i64 %s.offset
  %s.worked.p = getelementptr i8, ptr %s.range, i64 16
  %s.worked = load i64, ptr %s.worked.p
  %worked.1 = add i64 %worked, %s.worked
  %s.1 = add i64 %s, 1
  %s.last = icmp eq i64 %s.1, %n
  br i1 %s.last, label %note, label %sum

note:
  %took = sub i64 %end, %begin
  %too.long = icmp sgt i64 %took, %worked.1
  %steps.p = getelementptr i8, ptr %record, i64 {RECORD_STEPS}
  %steps = load atomic i64, ptr %steps.p monotonic, align 8
  %steps.twice = shl i64 %steps, 1
  %steps.some = call i64 @llvm.umax.i64(i64 %steps.twice, i64 1)
  %steps.most = call i64 @llvm.umin.i64(i64 %steps.some, i64 {MOST_ALONE})
  %steps.half = lshr i64 %steps, 1
  %steps.next = select i1 %too.long, i64 %steps.most, i64 %steps.half
  store atomic i64 %steps.next, ptr %steps.p monotonic, align 8
  store atomic i64 %steps.next, ptr %alone.p monotonic, align 8
  store atomic i64 %total, ptr %alone.total.p monotonic, align 8
  ret void

serial:
  call void @tw_programs(ptr %kernel, i64 0, i64 %total, ptr %args, ptr %arena, ptr %stop)
  ret void
}}
"""

_STOP = f"""
define internal ptr @tw_stop_of(ptr %runtime) nounwind {{
entry:
  %never = getelementptr i8, ptr %runtime, i64 {RUNTIME_NEVER}
  %stop.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_STOP}
  %stop = load ptr, ptr %stop.p
  %none = icmp eq ptr %stop, null
  br i1 %none, label %other, label %ask

ask:
  %self.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_SELF}
  %self.fn = load ptr, ptr %self.p
  %self = call i64 %self.fn()
  %main.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_MAIN}
  %main = load i64, ptr %main.p
  %is.main = icmp eq i64 %self, %main
  br i1 %is.main, label %mine, label %other

mine:                                     ; a signal that came before the launch is not for the launch
  store volatile i32 {RUNNING}, ptr %stop
  ret ptr %stop

other:
  ret ptr %never
}}
"""

_PROGRAMS = f"""
define internal void @tw_programs(ptr %kernel, i64 %lo, i64 %hi, ptr %args, ptr %arena, ptr %stop) nounwind {{
entry:
  br label %run
run:
  %first = phi i64 [ %lo, %entry ], [ %next, %early ]
  %next = call i64 %kernel(i64 %first, i64 %hi, ptr %args, ptr %arena, ptr %stop)
  %left = icmp ult i64 %next, %hi
  br i1 %left, label %early, label %over
early:                                    ; a signal has come
  %poll.p = getelementptr i8, ptr %stop, i64 {STOP_POLL}
  %poll = load ptr, ptr %poll.p
  %told = call i32 %poll(ptr %stop)
  %stays = icmp eq i32 %told, 0
  br i1 %stays, label %run, label %over
over:
  ret void
}}
"""

_RUN = f"""
define internal void @tw_run(ptr %job, i64 %tid) nounwind {{
entry:
  %kernel = load ptr, ptr %job
  %args.p = getelementptr %job.t, ptr %job, i32 0, i32 1
  %args = load ptr, ptr %args.p
  %arena.p = getelementptr %job.t, ptr %job, i32 0, i32 2
  %arena.0 = load ptr, ptr %arena.p
  %stride.p = getelementptr %job.t, ptr %job, i32 0, i32 3
  %stride = load i64, ptr %stride.p
  %chunk.p = getelementptr %job.t, ptr %job, i32 0, i32 4
  %chunk = load i64, ptr %chunk.p
  %n.p = getelementptr %job.t, ptr %job, i32 0, i32 5
  %n = load i64, ptr %n.p
  %ranges.p = getelementptr %job.t, ptr %job, i32 0, i32 6
  %ranges = load ptr, ptr %ranges.p
  %stop.p = getelementptr %job.t, ptr %job, i32 0, i32 8
  %stop = load ptr, ptr %stop.p
  %offset = mul i64 %tid, %stride
  %arena = getelementptr i8, ptr %arena.0, i64 %offset
  %begin = call i64 @tw_ticks()
  %member = icmp ult i64 %tid, %n         ; a runtime may give a larger team than asked for
  br i1 %member, label %victim, label %out

victim:
  %k = phi i64 [ 0, %entry ], [ %k.1, %next ]
  %v.0 = add i64 %tid, %k
  %v.wrap = sub i64 %v.0, %n
  %v.over = icmp uge i64 %v.0, %n
  %v = select i1 %v.over, i64 %v.wrap, i64 %v.0
  %range.offset = shl i64 %v, 7
  %range = getelementptr i8, ptr %ranges, i64 %range.offset
  %end.p = getelementptr i8, ptr %range, i64 8
  %end = load i64, ptr %end.p
  br label %look

look:                                     ; a plain look first: an empty range is not written to
  %state = load volatile i32, ptr %stop, align 4
  %stopped = icmp eq i32 %state, {STOPPED}
  br i1 %stopped, label %done, label %peek

peek:
  %seen = load atomic i64, ptr %range monotonic, align 8
  %some = icmp ult i64 %seen, %end
  br i1 %some, label %take, label %next

take:
  %lo = atomicrmw add ptr %range, i64 %chunk monotonic
  %got = icmp ult i64 %lo, %end
  br i1 %got, label %work, label %next

work:
  %hi.full = add i64 %lo, %chunk
  %hi = call i64 @llvm.umin.i64(i64 %hi.full, i64 %end)
  call void @tw_programs(ptr %kernel, i64 %lo, i64 %hi, ptr %args, ptr %arena, ptr %stop)
  br label %look

next:
  %k.1 = add i64 %k, 1
  %last = icmp eq i64 %k.1, %n
  br i1 %last, label %done, label %victim

done:
  %end.ticks = call i64 @tw_ticks()
  %worked = sub i64 %end.ticks, %begin
  %home.offset = shl i64 %tid, 7
  %home = getelementptr i8, ptr %ranges, i64 %home.offset
  %home.worked = getelementptr i8, ptr %home, i64 16
  store i64 %worked, ptr %home.worked
  br label %out

out:
  ret void
}}
"""

# GOMP_parallel(fn, data, threads, flags); the LLVM/Intel runtime where it has no such entry.
_OPENMP = f"""
define internal void @tw_gomp_entry(ptr %job) nounwind {{
  %fn.p = getelementptr %job.t, ptr %job, i32 0, i32 7
  %fn = load ptr, ptr %fn.p
  %tid.32 = call i32 %fn()
  %tid = zext i32 %tid.32 to i64
  call void @tw_run(ptr %job, i64 %tid)
  ret void
}}

define void @tw_team_gomp(ptr %runtime, ptr %job, i64 %n) nounwind {{
  %fork.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_FORK}
  %fork = load ptr, ptr %fork.p
  %n.32 = trunc i64 %n to i32
  call void %fork(ptr @tw_gomp_entry, ptr %job, i32 %n.32, i32 0)
  ret void
}}

define internal void @tw_kmpc_entry(ptr %gtid, ptr %btid, ptr %job) nounwind {{
  %tid.32 = load i32, ptr %btid
  %tid = zext i32 %tid.32 to i64
  call void @tw_run(ptr %job, i64 %tid)
  ret void
}}

@tw_ident_text = internal constant [23 x i8] c";unknown;unknown;0;0;;\\00"

define void @tw_team_kmpc(ptr %runtime, ptr %job, i64 %n) nounwind {{
  %ident = alloca {{ i32, i32, i32, i32, ptr }}, align 8
  store {{ i32, i32, i32, i32, ptr }} zeroinitializer, ptr %ident
  %flags.p = getelementptr i8, ptr %ident, i64 4
  store i32 2, ptr %flags.p
  %text.p = getelementptr i8, ptr %ident, i64 16
  store ptr @tw_ident_text, ptr %text.p
  %gtid.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_GTID}
  %gtid.fn = load ptr, ptr %gtid.p
  %gtid = call i32 %gtid.fn(ptr %ident)
  %push.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_PUSH}
  %push = load ptr, ptr %push.p
  %n.32 = trunc i64 %n to i32
  call void %push(ptr %ident, i32 %gtid, i32 %n.32)
  %fork.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_FORK}
  %fork = load ptr, ptr %fork.p
  call void (ptr, i32, ptr, ...) %fork(ptr %ident, i32 1, ptr @tw_kmpc_entry, ptr %job)
  ret void
}}
"""

# A job is open between `entry = 0` and the closing bit. A worker that comes late finds it closed and goes
# back to sleep, so nobody waits for threads that have not woken; only those that entered are waited for.
_POOL = f"""
define void @tw_team_pool(ptr %runtime, ptr %job, i64 %n) nounwind {{
entry:
  %pool.p = getelementptr i8, ptr %runtime, i64 {RUNTIME_POOL}
  %pool = load ptr, ptr %pool.p
  %owner = getelementptr i8, ptr %pool, i64 {POOL_OWNER}
  %took = cmpxchg ptr %owner, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %took, 1
  br i1 %mine, label %publish, label %alone

alone:                                    ; another launch has the pool: this thread does all ranges
  call void @tw_run(ptr %job, i64 0)
  ret void

publish:
  %job.p = getelementptr i8, ptr %pool, i64 {POOL_JOB}
  store ptr %job, ptr %job.p
  %team.p = getelementptr i8, ptr %pool, i64 {POOL_TEAM}
  store i64 %n, ptr %team.p
  %finished = getelementptr i8, ptr %pool, i64 {POOL_DONE}
  store atomic i64 0, ptr %finished monotonic, align 8
  %door = getelementptr i8, ptr %pool, i64 {POOL_ENTRY}
  store atomic i64 0, ptr %door release, align 8
  %generation = getelementptr i8, ptr %pool, i64 {POOL_GENERATION}
  atomicrmw add ptr %generation, i64 1 seq_cst
  %sleepers.p = getelementptr i8, ptr %pool, i64 {POOL_SLEEPERS}
  %sleepers = load atomic i64, ptr %sleepers.p seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %wake, label %share

wake:
  call void @tw_pool_wake(ptr %pool)
  br label %share

share:
  call void @tw_run(ptr %job, i64 0)
  %entered = atomicrmw or ptr %door, i64 {-(1 << 63)} acq_rel
  br label %wait

wait:
  %spins = phi i64 [ 0, %share ], [ %spins.1, %again ]
  %done = load atomic i64, ptr %finished acquire, align 8
  %all = icmp eq i64 %done, %entered
  br i1 %all, label %leave, label %pause

pause:
  call void @tw_pause()
  %spins.1 = add i64 %spins, 1
  %long = icmp ugt i64 %spins.1, 4096
  br i1 %long, label %yield, label %again

yield:                                    ; a worker lost its core in mid-chunk: let it run
  %yield.p = getelementptr i8, ptr %pool, i64 {POOL_YIELD_FN}
  %yield.fn = load ptr, ptr %yield.p
  %ignored = call i32 %yield.fn()
  br label %again

again:
  br label %wait

leave:
  store atomic i64 0, ptr %owner release, align 8
  ret void
}}

define internal void @tw_pool_wake(ptr %pool) nounwind {{
  %mutex = getelementptr i8, ptr %pool, i64 {POOL_MUTEX}
  %condition = getelementptr i8, ptr %pool, i64 {POOL_CONDITION}
  %lock.p = getelementptr i8, ptr %pool, i64 {POOL_LOCK_FN}
  %lock = load ptr, ptr %lock.p
  %unlock.p = getelementptr i8, ptr %pool, i64 {POOL_UNLOCK_FN}
  %unlock = load ptr, ptr %unlock.p
  %wake.p = getelementptr i8, ptr %pool, i64 {POOL_WAKE_FN}
  %wake = load ptr, ptr %wake.p
  %r0 = call i32 %lock(ptr %mutex)
  %r1 = call i32 %wake(ptr %condition)
  %r2 = call i32 %unlock(ptr %mutex)
  ret void
}}

; Sleep until the generation is no longer %seen. The two last arguments of %wait are the time-out and
; the flags of the Windows call; pthread_cond_wait takes two arguments and ignores the other registers.
define internal void @tw_pool_sleep(ptr %pool, i64 %seen) nounwind {{
entry:
  %mutex = getelementptr i8, ptr %pool, i64 {POOL_MUTEX}
  %condition = getelementptr i8, ptr %pool, i64 {POOL_CONDITION}
  %generation = getelementptr i8, ptr %pool, i64 {POOL_GENERATION}
  %sleepers = getelementptr i8, ptr %pool, i64 {POOL_SLEEPERS}
  %lock.p = getelementptr i8, ptr %pool, i64 {POOL_LOCK_FN}
  %lock = load ptr, ptr %lock.p
  %unlock.p = getelementptr i8, ptr %pool, i64 {POOL_UNLOCK_FN}
  %unlock = load ptr, ptr %unlock.p
  %wait.p = getelementptr i8, ptr %pool, i64 {POOL_WAIT_FN}
  %wait = load ptr, ptr %wait.p
  %r0 = call i32 %lock(ptr %mutex)
  atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check

check:
  %now = load atomic i64, ptr %generation seq_cst, align 8
  %same = icmp eq i64 %now, %seen
  br i1 %same, label %block, label %out

block:
  %r1 = call i32 %wait(ptr %condition, ptr %mutex, i32 -1, i32 0)
  br label %check

out:
  atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %r2 = call i32 %unlock(ptr %mutex)
  ret void
}}

; %self points to the pool's address and the index of this worker (1, 2, ...).
define ptr @tw_pool_worker(ptr %self) nounwind {{
entry:
  %pool = load ptr, ptr %self
  %index.p = getelementptr i8, ptr %self, i64 8
  %index = load i64, ptr %index.p
  %generation = getelementptr i8, ptr %pool, i64 {POOL_GENERATION}
  %spin.p = getelementptr i8, ptr %pool, i64 {POOL_SPIN}
  %stop.p = getelementptr i8, ptr %pool, i64 {POOL_STOP}
  %door = getelementptr i8, ptr %pool, i64 {POOL_ENTRY}
  %finished = getelementptr i8, ptr %pool, i64 {POOL_DONE}
  %job.p = getelementptr i8, ptr %pool, i64 {POOL_JOB}
  %team.p = getelementptr i8, ptr %pool, i64 {POOL_TEAM}
  br label %idle

idle:
  %seen = phi i64 [ 0, %entry ], [ %now, %closed ]
  %spin = load i64, ptr %spin.p
  br label %watch

watch:
  %spins = phi i64 [ 0, %idle ], [ %spins.1, %relax ]
  %glance = load atomic i64, ptr %generation acquire, align 8
  %new = icmp ne i64 %glance, %seen
  br i1 %new, label %awake, label %relax

relax:
  call void @tw_pause()
  %spins.1 = add i64 %spins, 1
  %more = icmp ult i64 %spins.1, %spin
  br i1 %more, label %watch, label %sleep

sleep:
  call void @tw_pool_sleep(ptr %pool, i64 %seen)
  br label %awake

awake:
  %now = load atomic i64, ptr %generation acquire, align 8
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %quit, label %enter

enter:
  %ticket = atomicrmw add ptr %door, i64 1 acq_rel
  %late = icmp slt i64 %ticket, 0
  br i1 %late, label %closed, label %inside

inside:
  %team = load i64, ptr %team.p
  %member = icmp ult i64 %index, %team
  br i1 %member, label %work, label %sign

work:
  %job = load ptr, ptr %job.p
  call void @tw_run(ptr %job, i64 %index)
  br label %sign

sign:
  atomicrmw add ptr %finished, i64 1 release
  br label %closed

closed:
  br label %idle

quit:
  ret ptr null
}}
"""


def launcher_ir(triple: str) -> str:
    """Text of the launcher module for the target `triple`."""
    return (
        f'target triple = "{triple}"\n'
        "; kernel, args, arena, arena stride, chunk, threads, ranges, omp_get_thread_num, stop\n"
        "%job.t = type { ptr, ptr, ptr, i64, i64, i64, ptr, ptr, ptr }\n"
        "declare i64 @llvm.umin.i64(i64, i64)\n"
        "declare i64 @llvm.umax.i64(i64, i64)\n"
        "declare i64 @llvm.smax.i64(i64, i64)\n"
        f"{processor_ir(triple)}{_STOP}{_PROGRAMS}{THREADS}{_LAUNCH}{_RUN}{_OPENMP}{_POOL}"
    )
