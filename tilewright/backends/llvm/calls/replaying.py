"""LLVM IR of calls that are replayed: a function that makes memory, launches kernels with it and gives it back.

tw_replay(self, args, nargs, kwnames)    METH_FASTCALL | METH_KEYWORDS: where nobody in PyTorch looks on and an entry
    remembers the call, its launches and its result; else what Python does
tw_called(object, args, kwargs)          how an object is called that has what to call in its first slot
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

_STEPS = f"""
; Whether the kernels of an entry would be launched as they were: 1, 0 if not, -1 with an exception set.
define internal i64 @as_they_were(ptr %shared, ptr %entry.t) {{
entry:
  %nsteps = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NSTEPS})
  %steps = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_STEPS})
  %whole = call i64 @still_holds(ptr %shared, ptr %entry.t)
  br label %asked
asked:
  %i = phi i64 [ 0, %entry ], [ %i.1, %launched ]
  %same = phi i64 [ %whole, %entry ], [ %own, %launched ]
  %holds = icmp eq i64 %same, 1
  %all = icmp eq i64 %i, %nsteps
  %last = select i1 %holds, i1 %all, i1 true
  br i1 %last, label %say, label %step
step:
  %i.1 = add i64 %i, 1
  %row = mul i64 %i, {t.STEP_WORDS}
  %step.t = getelementptr i64, ptr %steps, i64 %row
  %state = call ptr @pointer(ptr %step.t, i64 {t.STEP_STATE})
  %forgotten = call i64 @word(ptr %state, i64 {t.STATE_FORGOTTEN})
  %known = call i64 @word(ptr %step.t, i64 {t.STEP_FORGOTTEN})
  %hooks = call i64 @word(ptr %state, i64 {t.STATE_HOOKS})
  %kept = icmp eq i64 %forgotten, %known
  %unhooked = icmp eq i64 %hooks, 0
  %valid = and i1 %kept, %unhooked
  br i1 %valid, label %watch, label %no
watch:
  %traced = call i64 @word(ptr %step.t, i64 {t.STEP_TRACED})
  %is.traced = icmp ne i64 %traced, 0
  br i1 %is.traced, label %look, label %launched
look:
  %kernel = call ptr @pointer(ptr %step.t, i64 {t.STEP_KERNEL})
  %alone = call i1 @unobserved(ptr %shared, ptr %kernel)
  br i1 %alone, label %launched, label %no
launched:
  %step.entry = call ptr @pointer(ptr %step.t, i64 {t.STEP_ENTRY})
  %own = call i64 @still_holds(ptr %shared, ptr %step.entry)
  br label %asked
say:
  ret i64 %same
no:
  ret i64 0
}}

; Make the launches of an entry; false with an exception set.
define internal i1 @launch_all(ptr %shared, ptr %entry.t, ptr %values, ptr %objects) {{
entry:
  %nsteps = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NSTEPS})
  %steps = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_STEPS})
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.1, %done ]
  %all = icmp eq i64 %i, %nsteps
  br i1 %all, label %yes, label %one
one:
  %i.1 = add i64 %i, 1
  %row = mul i64 %i, {t.STEP_WORDS}
  %step.t = getelementptr i64, ptr %steps, i64 %row
  %step.entry = call ptr @pointer(ptr %step.t, i64 {t.STEP_ENTRY})
  %first = call i64 @word(ptr %step.t, i64 {t.STEP_FIRST})
  %own.values = getelementptr i64, ptr %values, i64 %first
  %programs = getelementptr i64, ptr %step.t, i64 {t.STEP_GRID}
  %ran = call i1 @direct(ptr %step.entry, ptr %own.values, ptr %programs, i64 -1)
  br i1 %ran, label %tell, label %no
tell:
  %traced = call i64 @word(ptr %step.t, i64 {t.STEP_TRACED})
  %is.traced = icmp ne i64 %traced, 0
  br i1 %is.traced, label %changed, label %done
changed:
  %own.objects = getelementptr ptr, ptr %objects, i64 %first
  call void @written(ptr %shared, ptr %step.entry, ptr %own.objects)
  br label %done
done:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}}

; What an entry gives, a new reference; null with an exception set.
define internal ptr @given_back(ptr %entry.t, ptr %objects) {{
entry:
  %count = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NRESULTS})
  %columns = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_RESULTS})
  switch i64 %count, label %several [ i64 -1, label %constant
                                      i64 0, label %single ]
constant:
  %constant.o = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_RESULT})
  br label %give
single:
  %column = call i64 @word(ptr %columns, i64 0)
  %single.o = call ptr @pointer(ptr %objects, i64 %column)
  br label %give
give:
  %object = phi ptr [ %constant.o, %constant ], [ %single.o, %single ]
  call void @Py_IncRef(ptr %object)
  ret ptr %object
several:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %done, label %item
item:
  %i = phi i64 [ 0, %several ], [ %i.1, %item ]
  %from = call i64 @word(ptr %columns, i64 %i)
  %item.o = call ptr @pointer(ptr %objects, i64 %from)
  call void @Py_IncRef(ptr %item.o)
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %item.o)
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, %count
  br i1 %more, label %item, label %done
done:
  ret ptr %tuple
}}
"""

_REPLAY = f"""
; Whether what the host code asks of PyTorch is as it was, and seen by nobody.
define internal i1 @is_usual(ptr %state) alwaysinline {{
  %seen = call i1 @is_seen(ptr %state)
  %profiled.f = call ptr @pointer(ptr %state, i64 {t.REPLAY_PROFILED})
  %profiled = call zeroext i1 %profiled.f()
  %fills.f = call ptr @pointer(ptr %state, i64 {t.REPLAY_FILLS})
  %context = call ptr @pointer(ptr %state, i64 {t.REPLAY_CONTEXT})
  %fills = call zeroext i1 %fills.f(ptr %context)
  %any = or i1 %profiled, %fills
  %other = or i1 %seen, %any
  %usual = xor i1 %other, true
  ret i1 %usual
}}

define ptr @tw_replay(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %values = alloca [{t.MOST_COLUMNS} x i64], align 16
  %objects = alloca [{t.MOST_COLUMNS} x ptr], align 16
  %owned = alloca [{2 * t.MOST_COLUMNS + 12} x i64], align 16
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %shared = call ptr @pointer(ptr %state, i64 {t.OPERATOR_SHARED})
  %usual = call i1 @is_usual(ptr %state)
  br i1 %usual, label %search, label %python
search:                                   ; memory that is made may run anything, by way of the collector
  %busy = getelementptr i64, ptr %state, i64 {t.REPLAY_BUSY}
  call void @in_use(ptr %busy)
  %chain = getelementptr i64, ptr %state, i64 {t.REPLAY_FIRST}
  %entry.t = call ptr @remembered(ptr %shared, ptr %chain, ptr %args, i64 %nargs, ptr %kwnames,
                                  ptr %values, ptr %objects, ptr %owned)
  %unknown = icmp eq ptr %entry.t, null
  br i1 %unknown, label %other, label %found
found:
  %real.f = call ptr @pointer(ptr %state, i64 {t.REPLAY_REAL})
  %real.now = call signext i8 %real.f()
  %real.64 = sext i8 %real.now to i64
  %real = call i64 @word(ptr %entry.t, i64 {t.ENTRY_REAL})
  %same.real = icmp eq i64 %real.64, %real
  br i1 %same.real, label %ask, label %other
ask:
  %valid = call i64 @as_they_were(ptr %shared, ptr %entry.t)
  switch i64 %valid, label %fail [ i64 1, label %launch
                                   i64 0, label %other ]
launch:
  %ran = call i1 @launch_all(ptr %shared, ptr %entry.t, ptr %values, ptr %objects)
  br i1 %ran, label %give, label %fail
give:
  %result = call ptr @given_back(ptr %entry.t, ptr %objects)
  call void @done_with(ptr %busy)
  call void @release(ptr %owned)
  ret ptr %result
other:
  call void @done_with(ptr %busy)
  call void @release(ptr %owned)
  br label %python
python:
  %observed.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_OBSERVED})
  %slowly = call ptr @PyObject_Vectorcall(ptr %observed.f, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %slowly
fail:
  call void @done_with(ptr %busy)
  call void @release(ptr %owned)
  ret ptr null
}}
"""

_CALLED = """
@ready = private constant [6 x i8] c"ready\\00"

define ptr @tw_called(ptr %object, ptr %args, ptr %kwargs) {{
entry:
  %at = getelementptr i8, ptr %object, i64 {ready_offset}
  %ready = load ptr, ptr %at
  %unset = icmp eq ptr %ready, null
  br i1 %unset, label %missing, label %call
call:
  %said = call ptr @PyObject_Call(ptr %ready, ptr %args, ptr %kwargs)
  ret ptr %said
missing:
  %error = call ptr @PyObject_GetAttrString(ptr %object, ptr @ready)
  ret ptr null
}}
"""


def replaying_ir(ready_offset: int) -> str:
    """The text of `tw_replay` and `tw_called`.

    Args:
        ready_offset: where an object has its first slot.
    """
    return _STEPS + _REPLAY + _CALLED.format(ready_offset=ready_offset)
