"""LLVM IR of the second half of a launch, and of `kernel[grid]`.

tw_call(self, args, nargs, kwnames)      METH_FASTCALL | METH_KEYWORDS: (grid, *args, **kwargs)
    hooks -> the last entry, then each: @matches -> before -> @grid -> @direct or @through
    none fits: miss(grid, *args, **kwargs), a Python function
tw_run(self, args, nargs)                METH_FASTCALL: `CompiledKernel.run` (`compile/run.py`) without hooks
tw_over(self, args, nargs, kwnames)      (kernel, grid, *args, **kwargs), unless a tracer would see it (`observing.py`)
tw_subscript(kernel, grid)               the method of a kernel's launch function that has the grid; kernel._over(grid)
                                         if it has none yet
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t
from tilewright.backends.llvm.calls.launching import LAUNCHING
from tilewright.backends.llvm.calls.matching import matching_ir
from tilewright.backends.llvm.calls.observing import OBSERVING
from tilewright.backends.llvm.calls.operators import OPERATORS
from tilewright.backends.llvm.calls.replaying import replaying_ir

_GRID = f"""
; The arguments by name, as a new dictionary.
define internal ptr @named(ptr %entry.t, ptr %args) {{
entry:
  %template = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_META})
  %names = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_META_NAMES})
  %nargs = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NARGS})
  %nkw = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NKW})
  %all = add i64 %nargs, %nkw
  %count = sub i64 %all, 1
  %made = call ptr @PyDict_Copy(ptr %template)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %bad, label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.1, %following ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %good, label %one
one:
  %i.1 = add i64 %i, 1
  %name = call ptr @pointer(ptr %names, i64 %i)
  %option = icmp eq ptr %name, null
  br i1 %option, label %following, label %put
put:
  %value = call ptr @pointer(ptr %args, i64 %i.1)
  %code = call i32 @PyDict_SetItem(ptr %made, ptr %name, ptr %value)
  %refused = icmp slt i32 %code, 0
  br i1 %refused, label %drop, label %following
following:
  br label %next
good:
  ret ptr %made
drop:
  call void @Py_DecRef(ptr %made)
  br label %bad
bad:
  ret ptr null
}}

; An integer of the grid: 1 to 2^31 - 1, else -1.
define internal i64 @extent(ptr %object, ptr %int) {{
entry:
  %over = alloca i32
  %exact = call i1 @is_of(ptr %object, ptr %int)
  br i1 %exact, label %read, label %bad
read:
  %n = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %over)
  %less = sub i64 %n, 1
  %fits = icmp ult i64 %less, 2147483647
  br i1 %fits, label %good, label %bad
good:
  ret i64 %n
bad:
  ret i64 -1
}}

; Three words of programs at %out, from a usual grid; false for what Python has to look at.
define internal i1 @plain_grid(ptr %shared, ptr %grid.o, ptr %out) {{
entry:
  %tuple = call ptr @pointer(ptr %shared, i64 {t.SHARED_TUPLE})
  %int = call ptr @pointer(ptr %shared, i64 {t.SHARED_INT})
  %out.y = getelementptr i64, ptr %out, i64 1
  %out.z = getelementptr i64, ptr %out, i64 2
  store i64 1, ptr %out.y
  store i64 1, ptr %out.z
  %is.tuple = call i1 @is_of(ptr %grid.o, ptr %tuple)
  br i1 %is.tuple, label %rank, label %odd
rank:
  %dims = call i64 @PyTuple_Size(ptr %grid.o)
  %dims.0 = sub i64 %dims, 1
  %few = icmp ult i64 %dims.0, 3
  br i1 %few, label %axis, label %odd
axis:
  %i = phi i64 [ 0, %rank ], [ %i.1, %next ]
  %item = call ptr @PyTuple_GetItem(ptr %grid.o, i64 %i)
  %n = call i64 @extent(ptr %item, ptr %int)
  %bad = icmp slt i64 %n, 0
  br i1 %bad, label %odd, label %next
next:
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %n, ptr %to
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, %dims
  br i1 %more, label %axis, label %limits
limits:                                   ; larger grids are looked at in Python
  %y = load i64, ptr %out.y
  %z = load i64, ptr %out.z
  %y.fine = icmp ult i64 %y, 65536
  %z.fine = icmp ult i64 %z, 32768
  %fine = and i1 %y.fine, %z.fine
  ret i1 %fine
odd:
  ret i1 false
}}

; The grid, called if it is a function; the object that says it, null with an exception set.
define internal ptr @grid(ptr %shared, ptr %entry.t, ptr %args, ptr %out, ptr %owned) {{
entry:
  %argv = alloca [2 x ptr]
  %given = load ptr, ptr %args
  %usual = call i1 @plain_grid(ptr %shared, ptr %given, ptr %out)
  br i1 %usual, label %plain, label %ask
plain:
  ret ptr %given
ask:
  %can = call i32 @PyCallable_Check(ptr %given)
  %is.function = icmp ne i32 %can, 0
  br i1 %is.function, label %name, label %look
name:
  %meta = call ptr @named(ptr %entry.t, ptr %args)
  %no.meta = icmp eq ptr %meta, null
  br i1 %no.meta, label %fail, label %call
call:
  store ptr %meta, ptr %argv
  %said = call ptr @PyObject_Vectorcall(ptr %given, ptr %argv, i64 1, ptr null)
  call void @Py_DecRef(ptr %meta)
  %angry = icmp eq ptr %said, null
  br i1 %angry, label %fail, label %keep
keep:
  call void @own(ptr %owned, ptr %said)
  %usual.said = call i1 @plain_grid(ptr %shared, ptr %said, ptr %out)
  br i1 %usual.said, label %told, label %look
told:
  ret ptr %said
look:                                     ; lists, numbers, zero programs; or an error
  %odd = phi ptr [ %given, %ask ], [ %said, %keep ]
  %grid3 = call ptr @pointer(ptr %shared, i64 {t.SHARED_GRID3})
  store ptr %odd, ptr %argv
  %three = call ptr @PyObject_Vectorcall(ptr %grid3, ptr %argv, i64 1, ptr null)
  %wrong = icmp eq ptr %three, null
  br i1 %wrong, label %fail, label %axis
axis:
  %i = phi i64 [ 0, %look ], [ %i.1, %axis ]
  %item = call ptr @PyTuple_GetItem(ptr %three, i64 %i)
  %n = call i64 @PyLong_AsLongLong(ptr %item)
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %n, ptr %to
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, 3
  br i1 %more, label %axis, label %read
read:
  call void @Py_DecRef(ptr %three)
  ret ptr %odd
fail:
  ret ptr null
}}
"""

_WATCH = f"""
; Tell launch hooks of a launch: what they were given, null with an exception set.
define internal ptr @enter(ptr %watch, ptr %entry.t, ptr %args, ptr %grid.o, ptr %owned) {{
entry:
  %argv = alloca [2 x ptr]
  %meta = call ptr @named(ptr %entry.t, ptr %args)
  %no.meta = icmp eq ptr %meta, null
  br i1 %no.meta, label %fail, label %tell
tell:
  call void @own(ptr %owned, ptr %meta)
  store ptr %meta, ptr %argv
  %argv.1 = getelementptr ptr, ptr %argv, i64 1
  store ptr %grid.o, ptr %argv.1
  %facts = call ptr @PyObject_Vectorcall(ptr %watch, ptr %argv, i64 2, ptr null)
  %angry = icmp eq ptr %facts, null
  br i1 %angry, label %fail, label %told
told:
  call void @own(ptr %owned, ptr %facts)
  ret ptr %facts
fail:
  ret ptr null
}}

; Tell those behind it, if there are any, also of a launch that failed; false with an exception set: theirs if they
; raise one, else that of the launch.
define internal i1 @leave(ptr %entry.t, ptr %facts, i1 %ran) {{
entry:
  %argv = alloca ptr
  %error = alloca [3 x ptr]
  %error.1 = getelementptr ptr, ptr %error, i64 1
  %error.2 = getelementptr ptr, ptr %error, i64 2
  %function = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_LEAVE})
  %nobody = icmp eq ptr %function, null
  br i1 %nobody, label %done, label %tell
tell:
  call void @PyErr_Fetch(ptr %error, ptr %error.1, ptr %error.2)
  store ptr %facts, ptr %argv
  %well = call i1 @done_by(ptr %function, ptr %argv, i64 1, ptr null)
  %kind = load ptr, ptr %error
  %value = load ptr, ptr %error.1
  %trace = load ptr, ptr %error.2
  br i1 %well, label %restore, label %replace
restore:
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  br label %done
replace:
  call void @Py_DecRef(ptr %kind)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %trace)
  ret i1 false
done:
  ret i1 %ran
}}
"""

_CALL = f"""
; Whether what an entry asks for ahead of a call says that it is this one: 1, 0 if not, -1 with an exception set.
define internal i64 @still_holds(ptr %shared, ptr %entry.t) alwaysinline {{
entry:
  %before = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_BEFORE})
  %unchecked = icmp eq ptr %before, null
  br i1 %unchecked, label %same, label %ask
ask:
  %answer = call ptr @PyObject_CallNoArgs(ptr %before)
  %angry = icmp eq ptr %answer, null
  br i1 %angry, label %fail, label %answered
answered:
  %false = call ptr @pointer(ptr %shared, i64 {t.SHARED_FALSE})
  %another = icmp eq ptr %answer, %false
  call void @Py_DecRef(ptr %answer)
  br i1 %another, label %other, label %same
same:
  ret i64 1
other:
  ret i64 0
fail:
  ret i64 -1
}}

define internal void @in_use(ptr %busy) alwaysinline {{
  %n = load i64, ptr %busy
  %n.1 = add i64 %n, 1
  store i64 %n.1, ptr %busy
  ret void
}}

define internal void @done_with(ptr %busy) alwaysinline {{
  %n = load i64, ptr %busy
  %n.1 = sub i64 %n, 1
  store i64 %n.1, ptr %busy
  ret void
}}

; A launch of a call that an entry remembers: what it gives, null with an exception set, or 1 for an unknown call.
; %given is null, or three words of programs in place of the grid among the arguments. With %traced what is written is
; told to torch.
define internal ptr @known(ptr %state, ptr %shared, ptr %args, i64 %nargs, ptr %kwnames, ptr %given, i64 %stream,
                           i1 %traced) {{
entry:
  %values = alloca [{t.MOST_COLUMNS} x i64], align 16
  %objects = alloca [{t.MOST_COLUMNS} x ptr], align 16
  %owned = alloca [{2 * t.MOST_COLUMNS + 12} x i64], align 16
  %own.programs = alloca [3 x i64], align 16
  %chain = getelementptr i64, ptr %state, i64 {t.STATE_FIRST}
  %entry.t = call ptr @remembered(ptr %shared, ptr %chain, ptr %args, i64 %nargs, ptr %kwnames,
                                  ptr %values, ptr %objects, ptr %owned)
  %unknown = icmp eq ptr %entry.t, null
  br i1 %unknown, label %miss, label %found
found:
  %busy = getelementptr i64, ptr %state, i64 {t.STATE_BUSY}
  call void @in_use(ptr %busy)
  %same = call i64 @still_holds(ptr %shared, ptr %entry.t)
  switch i64 %same, label %leave [ i64 1, label %size
                                   i64 0, label %another.call ]
size:
  %sized = icmp ne ptr %given, null
  br i1 %sized, label %how, label %evaluate
evaluate:
  %grid.e = call ptr @grid(ptr %shared, ptr %entry.t, ptr %args, ptr %own.programs, ptr %owned)
  %no.grid = icmp eq ptr %grid.e, null
  br i1 %no.grid, label %leave, label %how
how:
  %grid.o = phi ptr [ null, %size ], [ %grid.e, %evaluate ]
  %programs = phi ptr [ %given, %size ], [ %own.programs, %evaluate ]
  %result = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_RESULT})
  call void @Py_IncRef(ptr %result)
  %watch = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_WATCH})
  %alone = icmp eq ptr %watch, null
  br i1 %alone, label %launch, label %watched
watched:
  %told = call ptr @enter(ptr %watch, ptr %entry.t, ptr %args, ptr %grid.o, ptr %owned)
  %untold = icmp eq ptr %told, null
  br i1 %untold, label %finish, label %launch
launch:
  %facts = phi ptr [ null, %how ], [ %told, %watched ]
  %function = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_CALL})
  %native = icmp eq ptr %function, null
  br i1 %native, label %straight, label %round
straight:
  %launched = call i1 @direct(ptr %entry.t, ptr %values, ptr %programs, i64 %stream)
  br label %behind
round:
  %called = call i1 @through(ptr %entry.t, ptr %values, ptr %objects, ptr %programs, ptr %owned)
  br label %behind
behind:
  %ran = phi i1 [ %launched, %straight ], [ %called, %round ]
  %heard.of = icmp ne ptr %facts, null
  br i1 %heard.of, label %closing, label %finish
closing:
  %closed = call i1 @leave(ptr %entry.t, ptr %facts, i1 %ran)
  br label %finish
finish:
  %good = phi i1 [ false, %watched ], [ %ran, %behind ], [ %closed, %closing ]
  %counted = and i1 %good, %traced
  br i1 %counted, label %changed, label %ended
changed:
  call void @written(ptr %shared, ptr %entry.t, ptr %objects)
  br label %ended
ended:
  call void @done_with(ptr %busy)
  call void @release(ptr %owned)
  br i1 %good, label %give, label %drop
give:
  ret ptr %result
drop:
  call void @Py_DecRef(ptr %result)
  ret ptr null
leave:
  call void @done_with(ptr %busy)
  br label %fail
fail:
  call void @release(ptr %owned)
  ret ptr null

another.call:
  call void @done_with(ptr %busy)
  br label %miss
miss:
  call void @release(ptr %owned)
  ret ptr inttoptr (i64 1 to ptr)
}}

define ptr @tw_call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %shared = call ptr @pointer(ptr %state, i64 {t.STATE_SHARED})
  %hooks = call ptr @pointer(ptr %state, i64 {t.STATE_HOOKS})
  %unhooked = icmp eq ptr %hooks, null
  %lost = icmp eq i64 %nargs, 0
  %no.hooks = or i1 %unhooked, %lost
  br i1 %no.hooks, label %begin, label %hook
hook:                                     ; they see the arguments, not the grid
  %args.1 = getelementptr ptr, ptr %args, i64 1
  %nargs.1 = sub i64 %nargs, 1
  %well = call i1 @done_by(ptr %hooks, ptr %args.1, i64 %nargs.1, ptr %kwnames)
  br i1 %well, label %begin, label %fail
begin:
  %made = call ptr @known(ptr %state, ptr %shared, ptr %args, i64 %nargs, ptr %kwnames, ptr null, i64 -1,
                         i1 false)
  %unknown = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %unknown, label %miss, label %done
miss:
  %slow = call ptr @pointer(ptr %state, i64 {t.STATE_MISS})
  %slowly = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %slowly
done:
  ret ptr %made
fail:
  ret ptr null
}}

; (gx, gy, gz, stream, function, packed, facts, enter, exit, *arguments), without hooks; METH_FASTCALL
define ptr @tw_run(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %programs = alloca [3 x i64], align 16
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %shared = call ptr @pointer(ptr %state, i64 {t.STATE_SHARED})
  %int = call ptr @pointer(ptr %shared, i64 {t.SHARED_INT})
  %enough = icmp uge i64 %nargs, {t.RUN_ARGUMENTS}
  br i1 %enough, label %hook, label %miss
hook:
  %h = phi i64 [ {t.RUN_ENTER}, %entry ], [ %h.1, %hook ]
  %hook.o = call ptr @pointer(ptr %args, i64 %h)
  %wanted = call i32 @PyObject_IsTrue(ptr %hook.o)
  %h.1 = add i64 %h, 1
  %silent = icmp eq i32 %wanted, 0
  %other = icmp eq i64 %h, {t.RUN_ENTER}
  %again = and i1 %silent, %other
  br i1 %again, label %hook, label %hooks
hooks:
  br i1 %silent, label %axis, label %listened
listened:
  call void @PyErr_Clear()
  br label %miss
axis:
  %i = phi i64 [ 0, %hooks ], [ %i.1, %sized ]
  %n.o = call ptr @pointer(ptr %args, i64 %i)
  %n = call i64 @extent(ptr %n.o, ptr %int)
  %odd = icmp slt i64 %n, 0
  br i1 %odd, label %miss, label %sized
sized:
  %to = getelementptr i64, ptr %programs, i64 %i
  store i64 %n, ptr %to
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, 3
  br i1 %more, label %axis, label %queue
queue:                                    ; a number, or None for the current stream
  %stream.o = call ptr @pointer(ptr %args, i64 {t.RUN_STREAM})
  %is.number = call i1 @is_of(ptr %stream.o, ptr %int)
  br i1 %is.number, label %number, label %launch
number:
  %handle = call i64 @PyLong_AsUnsignedLongLongMask(ptr %stream.o)
  br label %launch
launch:
  %stream = phi i64 [ -1, %queue ], [ %handle, %number ]
  %from = getelementptr ptr, ptr %args, i64 {t.RUN_ARGUMENTS - 1}
  %passed = sub i64 %nargs, {t.RUN_ARGUMENTS - 1}
  %made = call ptr @known(ptr %state, ptr %shared, ptr %from, i64 %passed, ptr null, ptr %programs,
                         i64 %stream, i1 false)
  %unknown = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %unknown, label %miss, label %done
miss:
  %slow = call ptr @pointer(ptr %state, i64 {t.STATE_MISS})
  %slowly = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %nargs, ptr null)
  ret ptr %slowly
done:
  ret ptr %made
}}
"""

_SUBSCRIPT = """
; The table of the calls that a kernel's launch function knows; null where there is none, or hooks listen to launches.
define internal ptr @unhooked(ptr %kernel) {{
entry:
  %at = getelementptr i8, ptr %kernel, i64 {ready_offset}
  %ready = load ptr, ptr %at
  %unset = icmp eq ptr %ready, null
  br i1 %unset, label %none, label %whole
whole:
  %state.o = call ptr @PyCFunction_GetSelf(ptr %ready)
  %state = call ptr @PyLong_AsVoidPtr(ptr %state.o)
  %hooks = call ptr @pointer(ptr %state, i64 {hooks})
  %hooked = icmp ne ptr %hooks, null
  br i1 %hooked, label %none, label %found
found:
  ret ptr %state
none:
  ret ptr null
}}

; (kernel, grid, *args, **kwargs) with a tracer in the slot, which is called for what somebody observes
define ptr @tw_over(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %shared = call ptr @PyLong_AsVoidPtr(ptr %self)
  %kernel = load ptr, ptr %args
  %state = call ptr @unhooked(ptr %kernel)
  %early = icmp eq ptr %state, null
  br i1 %early, label %python, label %look
look:
  %alone = call i1 @unobserved(ptr %shared, ptr %kernel)
  br i1 %alone, label %launch, label %python
launch:
  %args.1 = getelementptr ptr, ptr %args, i64 1
  %nargs.1 = sub i64 %nargs, 1
  %made = call ptr @known(ptr %state, ptr %shared, ptr %args.1, i64 %nargs.1, ptr %kwnames, ptr null, i64 -1, i1 true)
  %unknown = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %unknown, label %python, label %done
python:
  %traced = call ptr @pointer(ptr %shared, i64 {traced})
  %said = call ptr @PyObject_Vectorcall(ptr %traced, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %said
done:
  ret ptr %made
}}

@over = private constant [6 x i8] c"_over\\00"
@one = private constant [4 x i8] c"(O)\\00"

define ptr @tw_subscript(ptr %kernel, ptr %grid) {{
entry:
  %at = getelementptr i8, ptr %kernel, i64 {ready_offset}
  %ready = load ptr, ptr %at
  %unset = icmp eq ptr %ready, null
  br i1 %unset, label %early, label %whole
whole:
  %method = call ptr @PyMethod_New(ptr %ready, ptr %grid)
  ret ptr %method
early:                                    ; nothing was launched yet
  %made = call ptr (ptr, ptr, ptr, ...) @PyObject_CallMethod(ptr %kernel, ptr @over, ptr @one, ptr %grid)
  ret ptr %made
}}
"""

EXPORTS = (
    "tw_call",
    "tw_run",
    "tw_over",
    "tw_subscript",
    "tw_operator",
    "tw_launched",
    "tw_replay",
    "tw_called",
    "tw_apart",
)


CALLS = "calls"
"""Name of the code among the helpers of a back end."""
READY_OFFSET = object.__basicsize__  # where a kernel has its launch function: its first slot
TYPE_OFFSET = READY_OFFSET - 8  # where an object has its class: the last word of its head; both are checked before use


def calls_text(triple: str) -> str:
    """LLVM IR of `EXPORTS`."""
    words = {"ready_offset": READY_OFFSET, "hooks": t.STATE_HOOKS, "traced": t.SHARED_TRACED}
    launches = (_GRID, LAUNCHING, _WATCH, OBSERVING, _CALL, _SUBSCRIPT.format(**words))
    return "".join(
        (f'target triple = "{triple}"\n', matching_ir(TYPE_OFFSET), *launches, OPERATORS, replaying_ir(READY_OFFSET))
    )
