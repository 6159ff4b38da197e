"""LLVM IR of the call of an operator of PyTorch, past the dispatcher where nobody looks on.

tw_operator(self, args, nargs, kwnames)  METH_FASTCALL | METH_KEYWORDS: the function with gradients off, where no mode,
    transform or autocast is on, arguments are of known classes and none has a gradient to record; else what Python does
tw_launched(self, args, nargs, kwnames)  the operator of one kernel, (*arguments, *grid): the launch, where no mode,
    transform or profiler is on and the kernel knows the call; else what Python does
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

_WHO = f"""
; Whether somebody sees the calls of this thread: a dispatch mode or function mode, or a transform.
define internal i1 @is_seen(ptr %state) alwaysinline {{
  %modes.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_MODES})
  %modes = call i64 %modes.f()
  %functions.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_FUNCTIONS})
  %functions = call i64 %functions.f()
  %all = or i64 %modes, %functions
  %is.mode = icmp ne i64 %all, 0
  %included.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_INCLUDED})
  %key = call i64 @word(ptr %state, i64 {t.OPERATOR_TRANSFORM})
  %key.16 = trunc i64 %key to i16
  %is.transform = call zeroext i1 %included.f(i16 zeroext %key.16)
  %any = or i1 %is.mode, %is.transform
  ret i1 %any
}}

; Whether autocast would change the arguments of a call.
define internal i1 @is_cast(ptr %state) alwaysinline {{
  %excluded.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_EXCLUDED})
  %keys = call i64 @word(ptr %state, i64 {t.OPERATOR_AUTOCAST})
  %none.cast = call zeroext i1 %excluded.f(i64 %keys)
  %is.cast = xor i1 %none.cast, true
  ret i1 %is.cast
}}
"""

_ARGUMENTS = f"""
; Whether the operator may be called past the dispatcher with these arguments.
define internal i1 @plain(ptr %state, ptr %shared, ptr %args, i64 %count, i1 %records) {{
entry:
  %floats = call i64 @word(ptr %state, i64 {t.OPERATOR_FLOATS})
  %cdata = call i64 @word(ptr %shared, i64 {t.SHARED_CDATA})
  %requires.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_REQUIRES})
  br label %argument
argument:
  %i = phi i64 [ 0, %entry ], [ %i.1, %fine ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %object = call ptr @pointer(ptr %args, i64 %i)
  br label %class
class:
  %c = phi i64 [ 0, %look ], [ %c.1, %next ]
  %at = add i64 %c, {t.OPERATOR_CLASSES}
  %wanted = call ptr @pointer(ptr %state, i64 %at)
  %same = call i1 @is_of(ptr %object, ptr %wanted)
  br i1 %same, label %found, label %next
next:
  %c.1 = add i64 %c, 1
  %others = icmp ult i64 %c.1, {len(t.OPERATOR_KINDS)}
  br i1 %others, label %class, label %no
found:
  %is.tensor = icmp ult i64 %c, {t.OPERATOR_KINDS.index("int")}
  br i1 %is.tensor, label %tensor, label %number
tensor:
  br i1 %records, label %ask, label %fine
ask:
  %handle = getelementptr i8, ptr %object, i64 %cdata
  %inner = load ptr, ptr %handle
  %requires = call zeroext i1 %requires.f(ptr %inner)
  br i1 %requires, label %no, label %fine
number:                                   ; the dispatcher makes floats of integers
  %is.int = icmp eq i64 %c, {t.OPERATOR_KINDS.index("int")}
  %bits = lshr i64 %floats, %i
  %is.float = trunc i64 %bits to i1
  %changes = and i1 %is.int, %is.float
  br i1 %changes, label %no, label %fine
fine:
  %i.1 = add i64 %i, 1
  br label %argument
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_CALL = f"""
define ptr @tw_operator(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %shared = call ptr @pointer(ptr %state, i64 {t.OPERATOR_SHARED})
  %ready = call i64 @word(ptr %state, i64 {t.OPERATOR_READY})
  %may = icmp ne i64 %ready, 0
  br i1 %may, label %who, label %miss
who:
  %seen = call i1 @is_seen(ptr %state)
  br i1 %seen, label %miss, label %cast
cast:
  %is.cast = call i1 @is_cast(ptr %state)
  br i1 %is.cast, label %miss, label %names
names:
  %records.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_RECORDS})
  %records = call zeroext i1 %records.f()
  %no.names = icmp eq ptr %kwnames, null
  br i1 %no.names, label %look, label %named
named:                                    ; which of them is a float is for Python
  %floats = call i64 @word(ptr %state, i64 {t.OPERATOR_FLOATS})
  %nkw = call i64 @PyTuple_Size(ptr %kwnames)
  %no.float = icmp eq i64 %floats, 0
  br i1 %no.float, label %look, label %miss
look:
  %more = phi i64 [ 0, %names ], [ %nkw, %named ]
  %count = add i64 %nargs, %more
  %plain = call i1 @plain(ptr %state, ptr %shared, ptr %args, i64 %count, i1 %records)
  br i1 %plain, label %enter, label %miss
miss:
  %observed.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_OBSERVED})
  %slowly = call ptr @PyObject_Vectorcall(ptr %observed.f, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %slowly

enter:
  %set.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_SET_RECORDS})
  br i1 %records, label %off, label %call
off:
  call void %set.f(i1 zeroext false)
  br label %call
call:
  %function = call ptr @pointer(ptr %state, i64 {t.OPERATOR_FUNCTION})
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %kwnames)
  br i1 %records, label %on, label %done
on:
  call void %set.f(i1 zeroext true)
  br label %done
done:
  ret ptr %result
}}
"""

_LAUNCHED = f"""
; The arguments of the launch behind its grid, which is the first: of the operator, or constants.
define internal void @placed(ptr %state, ptr %args, ptr %argv) {{
entry:
  %count = call i64 @word(ptr %state, i64 {t.LAUNCHED_COUNT})
  %places = call ptr @pointer(ptr %state, i64 {t.LAUNCHED_PLACES})
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.1, %store ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %all, label %one
one:
  %i.1 = add i64 %i, 1
  %row = shl i64 %i, 1
  %row.1 = or i64 %row, 1
  %place = call i64 @word(ptr %places, i64 %row)
  %constant = call ptr @pointer(ptr %places, i64 %row.1)
  %is.constant = icmp slt i64 %place, 0
  br i1 %is.constant, label %store, label %given
given:
  %argument = call ptr @pointer(ptr %args, i64 %place)
  br label %store
store:
  %value = phi ptr [ %constant, %one ], [ %argument, %given ]
  %to = getelementptr ptr, ptr %argv, i64 %i.1
  store ptr %value, ptr %to
  br label %next
all:
  ret void
}}

define ptr @tw_launched(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %argv = alloca [{t.MOST_COLUMNS + 1} x ptr]
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %shared = call ptr @pointer(ptr %state, i64 {t.OPERATOR_SHARED})
  %leaves = call i64 @word(ptr %state, i64 {t.LAUNCHED_LEAVES})
  %rank = call i64 @word(ptr %state, i64 {t.LAUNCHED_RANK})
  %both = add i64 %leaves, %rank
  %complete = icmp eq i64 %nargs, %both
  %no.names = icmp eq ptr %kwnames, null
  %usual = and i1 %complete, %no.names
  br i1 %usual, label %who, label %python
who:
  %seen = call i1 @is_seen(ptr %state)
  br i1 %seen, label %python, label %profile
profile:
  %profiled.f = call ptr @pointer(ptr %state, i64 {t.LAUNCHED_PROFILED})
  %profiled = call zeroext i1 %profiled.f()
  %modes.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_MODES})
  %uncounted = icmp eq ptr %modes.f, null ; nobody said where tensors have their versions
  %other = or i1 %profiled, %uncounted
  br i1 %other, label %python, label %kernel
kernel:
  %kernel.o = call ptr @pointer(ptr %state, i64 {t.OPERATOR_FUNCTION})
  %table = call ptr @unhooked(ptr %kernel.o)
  %early = icmp eq ptr %table, null
  br i1 %early, label %python, label %grid
grid:
  %grid.o = call ptr @PyTuple_New(i64 %rank)
  %failed = icmp eq ptr %grid.o, null
  br i1 %failed, label %fail, label %axis
axis:
  %a = phi i64 [ 0, %grid ], [ %a.1, %axis ]
  %from = add i64 %leaves, %a
  %extent = call ptr @pointer(ptr %args, i64 %from)
  call void @Py_IncRef(ptr %extent)
  %set = call i32 @PyTuple_SetItem(ptr %grid.o, i64 %a, ptr %extent)
  %a.1 = add i64 %a, 1
  %more = icmp ult i64 %a.1, %rank
  br i1 %more, label %axis, label %launch
launch:
  store ptr %grid.o, ptr %argv
  call void @placed(ptr %state, ptr %args, ptr %argv)
  %names = call ptr @pointer(ptr %state, i64 {t.LAUNCHED_NAMES})
  %positional = call i64 @word(ptr %state, i64 {t.LAUNCHED_POSITIONAL})
  %made = call ptr @known(ptr %table, ptr %shared, ptr %argv, i64 %positional, ptr %names, ptr null, i64 -1, i1 true)
  call void @Py_DecRef(ptr %grid.o)
  %unknown = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %unknown, label %python, label %judge
judge:
  %angry = icmp eq ptr %made, null
  br i1 %angry, label %fail, label %done
done:
  call void @Py_DecRef(ptr %made)
  %none = call ptr @pointer(ptr %state, i64 {t.LAUNCHED_NONE})
  call void @Py_IncRef(ptr %none)
  ret ptr %none
python:
  %observed.f = call ptr @pointer(ptr %state, i64 {t.OPERATOR_OBSERVED})
  %slowly = call ptr @PyObject_Vectorcall(ptr %observed.f, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %slowly
fail:
  ret ptr null
}}
"""

OPERATORS = "".join((_WHO, _ARGUMENTS, _CALL, _LAUNCHED))
