"""LLVM IR that runs a range of programs for the launcher: again from where a kernel left, until all have run.

::

    tw_range(kernel, lo, hi, args, arena, stop):
      do next = kernel(lo, hi, args, arena, stop), and ask whoever wants to know, as the kernel does not: see `abi`
      while next < hi and the answer is to go on, from lo = next
"""

from __future__ import annotations

from tilewright.backends.cpu.abi import RUNNING, STOP_POLL

RANGE = f"""
define internal void @tw_range(ptr %kernel, i64 %lo, i64 %hi, ptr %args, ptr %arena, ptr %stop) nounwind {{
entry:
  br label %run

run:
  %from = phi i64 [ %lo, %entry ], [ %next, %ask ]
  %next = call i64 %kernel(i64 %from, i64 %hi, ptr %args, ptr %arena, ptr %stop)
  %some = icmp slt i64 %next, %hi
  %state = load volatile i32, ptr %stop, align 4
  %told = icmp ne i32 %state, {RUNNING}
  %why = or i1 %some, %told                 ; who was told may find it taken back
  br i1 %why, label %ask, label %done

ask:
  %poll.p = getelementptr i8, ptr %stop, i64 {STOP_POLL}
  %poll = load ptr, ptr %poll.p
  %over = call i32 %poll(ptr %stop)
  %free = icmp eq i32 %over, 0
  %more = and i1 %free, %some
  br i1 %more, label %run, label %done

done:
  ret void
}}
"""
