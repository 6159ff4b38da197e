"""LLVM IR that says how many threads a launch has, as far as that can be known without Python."""

from __future__ import annotations

COUNT_READY, COUNT_USUAL, COUNT_ASK, COUNT_WORDS = range(4)
"""Words of `tw_threads`: the most threads that there can be at once, 0 where Python has to be asked; how many a launch
has, or 0; torch's function that says it."""

COUNTING = ("tw_threads", "tw_threads_words")

THREADS = f"""
@tw_threads_words = global [{COUNT_WORDS} x i64] zeroinitializer, align 16

; Threads of the next launch, of those `wanted` or, where that is 0, the usual number; 1 where Python has to be asked.
define i32 @tw_threads(i32 %wanted, ptr %out) {{
entry:
  %ready.p = getelementptr i64, ptr @tw_threads_words, i64 {COUNT_READY}
  %usual.p = getelementptr i64, ptr @tw_threads_words, i64 {COUNT_USUAL}
  %ask.p = getelementptr i64, ptr @tw_threads_words, i64 {COUNT_ASK}
  %ready = load i64, ptr %ready.p
  %usual = load i64, ptr %usual.p
  %ask = load ptr, ptr %ask.p
  %given = zext i32 %wanted to i64
  %is.given = icmp ne i64 %given, 0
  %known = select i1 %is.given, i64 %given, i64 %usual
  %is.known = icmp ne i64 %known, 0
  %mute = icmp eq ptr %ask, null
  %settled = or i1 %is.known, %mute
  br i1 %settled, label %judge, label %torch
torch:
  %said = call i32 %ask()
  %said.64 = sext i32 %said to i64
  br label %judge
judge:
  %count = phi i64 [ %known, %entry ], [ %said.64, %torch ]
  %less = sub i64 %count, 1
  %fits = icmp ult i64 %less, %ready
  store i64 %count, ptr %out
  %no = xor i1 %fits, true
  %code = zext i1 %no to i32
  ret i32 %code
}}
"""
