"""A launch without Python: one machine function for all kernels, called by the interpreter like a built-in.

`tw_call(self, args, nargs, kwnames)` follows CPython's convention METH_FASTCALL | METH_KEYWORDS and uses nothing of the
interpreter but exported functions. It is told what to do by tables of words that Python fills:

    state -> entry -> entry -> ...     an entry is one remembered call: its shape, what is asked of each argument, and
                                       how the launch is packed
    each entry: shape of the call? -> each argument? -> grid -> checks -> pack -> tw_launch without the GIL
    no entry fits: miss(grid, *args, **kwargs), a Python function

A call's arguments are looked at in the order in which they are written, keywords and launch options included, so that
binding them to parameters is done once, when an entry is made.
"""

from __future__ import annotations

# Words of the tables, by index.
STATE_MISS, STATE_FIRST, STATE_TUPLE, STATE_INT, STATE_EXCHANGE, STATE_LAUNCH, STATE_WORDS = range(7)
ENTRY_NEXT, ENTRY_NARGS, ENTRY_NKW, ENTRY_NAMES, ENTRY_NCOLS, ENTRY_COLUMNS, ENTRY_NSLOTS, ENTRY_SLOTS = range(8)
ENTRY_RECORD, ENTRY_SERIAL, ENTRY_THREADS, ENTRY_BEFORE, ENTRY_RESULT, ENTRY_WORDS = range(8, 14)
COLUMN_KIND, COLUMN_WANTED, COLUMN_MASK, COLUMN_KEY, COLUMN_WORDS = range(5)

# Kinds of columns: what is asked of an argument, and what its value is.
SAME, TENSOR, INTEGER, FLOAT32, FLOAT64 = range(5)

# Facts of an integer: bit 0 divisible by 16, bit 1 is 1, bit 2 outside of 32 bits. Of a tensor: the element type as
# DLPack has it in the low 32 bits, bit 32 aligned to 16 bytes.
FACT_DIVISIBLE, FACT_ONE, FACT_WIDE, FACT_ALIGNED = 1, 2, 4, 1 << 32
MOST_COLUMNS = 60

_EXTERNALS = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyObject_Type(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""

_HELPERS = f"""
define internal i64 @word(ptr %table, i64 %index) alwaysinline {{
  %p = getelementptr i64, ptr %table, i64 %index
  %w = load i64, ptr %p
  ret i64 %w
}}

define internal ptr @pointer(ptr %table, i64 %index) alwaysinline {{
  %p = getelementptr i64, ptr %table, i64 %index
  %w = load ptr, ptr %p
  ret ptr %w
}}

define internal i1 @is_of(ptr %object, ptr %type) {{
  %found = call ptr @PyObject_Type(ptr %object)
  %same = icmp eq ptr %found, %type
  call void @Py_DecRef(ptr %found)
  ret i1 %same
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

; Whether an argument is what a column asks for; its value goes to %out.
define internal i1 @fits(ptr %state, ptr %column, ptr %object, ptr %out) {{
entry:
  %over = alloca i32
  %tensor = alloca [8 x i64], align 16
  %kind = call i64 @word(ptr %column, i64 {COLUMN_KIND})
  %wanted = call ptr @pointer(ptr %column, i64 {COLUMN_WANTED})
  %key = call i64 @word(ptr %column, i64 {COLUMN_KEY})
  %is.same = icmp eq i64 %kind, {SAME}
  br i1 %is.same, label %same, label %typed
same:
  %equal = icmp eq ptr %object, %wanted
  ret i1 %equal
typed:
  %of.type = call i1 @is_of(ptr %object, ptr %wanted)
  br i1 %of.type, label %read, label %no
read:
  switch i64 %kind, label %no [ i64 {TENSOR}, label %read.tensor
                                i64 {INTEGER}, label %read.integer
                                i64 {FLOAT32}, label %read.float
                                i64 {FLOAT64}, label %read.float ]
read.tensor:
  %exchange = call ptr @pointer(ptr %state, i64 {STATE_EXCHANGE})
  %code = call i32 %exchange(ptr %object, ptr %tensor)
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %clear, label %described
described:
  %data = call i64 @word(ptr %tensor, i64 0)
  %device.p = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device.p
  %element.p = getelementptr i8, ptr %tensor, i64 20
  %element = load i32, ptr %element.p
  %offset = call i64 @word(ptr %tensor, i64 5)
  %address = add i64 %data, %offset
  store i64 %address, ptr %out
  %on.cpu = icmp eq i32 %device, 1
  %some = icmp ne i64 %data, 0
  %low = and i64 %address, 15
  %aligned = icmp eq i64 %low, 0
  %aligned.bit = select i1 %aligned, i64 {FACT_ALIGNED}, i64 0
  %element.64 = zext i32 %element to i64
  %facts.t = or i64 %element.64, %aligned.bit
  %as.asked.t = icmp eq i64 %facts.t, %key
  %usable = and i1 %on.cpu, %some
  %fine = and i1 %usable, %as.asked.t
  ret i1 %fine
read.integer:
  %n = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %over)
  store i64 %n, ptr %out
  %beyond = load i32, ptr %over
  %in.64 = icmp eq i32 %beyond, 0
  %low.bits = and i64 %n, 15
  %by.16 = icmp eq i64 %low.bits, 0
  %bit.0 = select i1 %by.16, i64 {FACT_DIVISIBLE}, i64 0
  %one = icmp eq i64 %n, 1
  %bit.1 = select i1 %one, i64 {FACT_ONE}, i64 0
  %short = trunc i64 %n to i32
  %back = sext i32 %short to i64
  %wide = icmp ne i64 %back, %n
  %bit.2 = select i1 %wide, i64 {FACT_WIDE}, i64 0
  %bits.01 = or i64 %bit.0, %bit.1
  %bits = or i64 %bits.01, %bit.2
  %mask = call i64 @word(ptr %column, i64 {COLUMN_MASK})
  %facts.i = and i64 %bits, %mask
  %as.asked.i = icmp eq i64 %facts.i, %key
  %both = and i1 %in.64, %as.asked.i
  ret i1 %both
read.float:
  %real = call double @PyFloat_AsDouble(ptr %object)
  %is.double = icmp eq i64 %kind, {FLOAT64}
  br i1 %is.double, label %double, label %single
double:
  store double %real, ptr %out
  ret i1 true
single:
  %rounded = fptrunc double %real to float
  %pattern = bitcast float %rounded to i32
  %pattern.64 = zext i32 %pattern to i64
  store i64 %pattern.64, ptr %out
  ret i1 true
clear:
  call void @PyErr_Clear()
  br label %no
no:
  ret i1 false
}}
"""

# Block: record, threads, arena, slots, grid (see ir.py).
_CALL = f"""
define ptr @tw_call(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %values = alloca [{MOST_COLUMNS} x i64], align 16
  %block = alloca [{MOST_COLUMNS + 6} x i64], align 16
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %first = call ptr @pointer(ptr %state, i64 {STATE_FIRST})
  %no.names = icmp eq ptr %kwnames, null
  br i1 %no.names, label %search, label %count
count:
  %named = call i64 @PyTuple_Size(ptr %kwnames)
  br label %search
search:
  %nkw = phi i64 [ 0, %entry ], [ %named, %count ]
  br label %try

try:
  %entry.t = phi ptr [ %first, %search ], [ %following, %next ]
  %none = icmp eq ptr %entry.t, null
  br i1 %none, label %miss, label %shape
shape:
  %want.nargs = call i64 @word(ptr %entry.t, i64 {ENTRY_NARGS})
  %want.nkw = call i64 @word(ptr %entry.t, i64 {ENTRY_NKW})
  %same.nargs = icmp eq i64 %want.nargs, %nargs
  %same.nkw = icmp eq i64 %want.nkw, %nkw
  %same.shape = and i1 %same.nargs, %same.nkw
  %names = call ptr @pointer(ptr %entry.t, i64 {ENTRY_NAMES})
  br i1 %same.shape, label %name, label %next
name:
  %k = phi i64 [ 0, %shape ], [ %k.1, %name.one ]
  %all.names = icmp eq i64 %k, %nkw
  br i1 %all.names, label %columns, label %name.one
name.one:
  %given.name = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %k)
  %want.name = call ptr @pointer(ptr %names, i64 %k)
  %k.1 = add i64 %k, 1
  %same.name = icmp eq ptr %given.name, %want.name
  br i1 %same.name, label %name, label %next
columns:
  %ncols = call i64 @word(ptr %entry.t, i64 {ENTRY_NCOLS})
  %table = call ptr @pointer(ptr %entry.t, i64 {ENTRY_COLUMNS})
  br label %column
column:
  %i = phi i64 [ 0, %columns ], [ %i.1, %column.one ]
  %all.columns = icmp eq i64 %i, %ncols
  br i1 %all.columns, label %grid, label %column.one
column.one:
  %i.1 = add i64 %i, 1
  %object.p = getelementptr ptr, ptr %args, i64 %i.1
  %object = load ptr, ptr %object.p
  %place = mul i64 %i, {COLUMN_WORDS}
  %asked = getelementptr i64, ptr %table, i64 %place
  %value.p = getelementptr i64, ptr %values, i64 %i
  %fine = call i1 @fits(ptr %state, ptr %asked, ptr %object, ptr %value.p)
  br i1 %fine, label %column, label %next
next:
  %following = call ptr @pointer(ptr %entry.t, i64 {ENTRY_NEXT})
  br label %try

grid:
  %grid.o = load ptr, ptr %args
  %tuple = call ptr @pointer(ptr %state, i64 {STATE_TUPLE})
  %int = call ptr @pointer(ptr %state, i64 {STATE_INT})
  %is.tuple = call i1 @is_of(ptr %grid.o, ptr %tuple)
  br i1 %is.tuple, label %rank, label %miss
rank:
  %dims = call i64 @PyTuple_Size(ptr %grid.o)
  %dims.0 = sub i64 %dims, 1
  %few = icmp ult i64 %dims.0, 3
  br i1 %few, label %x, label %miss
x:
  %x.o = call ptr @PyTuple_GetItem(ptr %grid.o, i64 0)
  %gx = call i64 @extent(ptr %x.o, ptr %int)
  %has.y = icmp ugt i64 %dims, 1
  br i1 %has.y, label %y, label %sized
y:
  %y.o = call ptr @PyTuple_GetItem(ptr %grid.o, i64 1)
  %y.n = call i64 @extent(ptr %y.o, ptr %int)
  %has.z = icmp ugt i64 %dims, 2
  br i1 %has.z, label %z, label %sized
z:
  %z.o = call ptr @PyTuple_GetItem(ptr %grid.o, i64 2)
  %z.n = call i64 @extent(ptr %z.o, ptr %int)
  br label %sized
sized:
  %gy = phi i64 [ 1, %x ], [ %y.n, %y ], [ %y.n, %z ]
  %gz = phi i64 [ 1, %x ], [ 1, %y ], [ %z.n, %z ]
  %yz = or i64 %gy, %gz
  %xyz = or i64 %gx, %yz
  %bad.grid = icmp slt i64 %xyz, 0
  br i1 %bad.grid, label %miss, label %limits
limits:                                   ; larger grids are refused in Python, with the reason
  %y.most = icmp sgt i64 %gy, 65535
  %z.most = icmp sgt i64 %gz, 32767
  %too.large = or i1 %y.most, %z.most
  br i1 %too.large, label %miss, label %check

check:
  %before = call ptr @pointer(ptr %entry.t, i64 {ENTRY_BEFORE})
  %unchecked = icmp eq ptr %before, null
  br i1 %unchecked, label %threads, label %ask
ask:
  %answer = call ptr @PyObject_CallNoArgs(ptr %before)
  %angry = icmp eq ptr %answer, null
  br i1 %angry, label %fail, label %checked
checked:
  call void @Py_DecRef(ptr %answer)
  br label %threads
threads:
  %plane = mul i64 %gx, %gy
  %total = mul i64 %plane, %gz
  %serial = call i64 @word(ptr %entry.t, i64 {ENTRY_SERIAL})
  %alone = icmp ult i64 %total, %serial
  br i1 %alone, label %pack, label %team
team:
  %teller = call ptr @pointer(ptr %entry.t, i64 {ENTRY_THREADS})
  %told = call ptr @PyObject_CallNoArgs(ptr %teller)
  %untold = icmp eq ptr %told, null
  br i1 %untold, label %fail, label %number
number:
  %threads.n = call i64 @PyLong_AsLongLong(ptr %told)
  call void @Py_DecRef(ptr %told)
  br label %pack

pack:
  %count.n = phi i64 [ 1, %threads ], [ %threads.n, %number ]
  %record = call i64 @word(ptr %entry.t, i64 {ENTRY_RECORD})
  store i64 %record, ptr %block
  %b.1 = getelementptr i64, ptr %block, i64 1
  store i64 %count.n, ptr %b.1
  %b.2 = getelementptr i64, ptr %block, i64 2
  store i64 0, ptr %b.2
  %nslots = call i64 @word(ptr %entry.t, i64 {ENTRY_NSLOTS})
  %slots = call ptr @pointer(ptr %entry.t, i64 {ENTRY_SLOTS})
  br label %slot
slot:
  %s = phi i64 [ 0, %pack ], [ %s.1, %slot.one ]
  %s.to = add i64 %s, 3
  %to = getelementptr i64, ptr %block, i64 %s.to
  %packed = icmp eq i64 %s, %nslots
  br i1 %packed, label %go, label %slot.one
slot.one:
  %s.1 = add i64 %s, 1
  %from = call i64 @word(ptr %slots, i64 %s)
  %v = call i64 @word(ptr %values, i64 %from)
  store i64 %v, ptr %to
  br label %slot
go:
  store i64 %gx, ptr %to
  %to.y = getelementptr i64, ptr %to, i64 1
  store i64 %gy, ptr %to.y
  %to.z = getelementptr i64, ptr %to, i64 2
  store i64 %gz, ptr %to.z
  %result = call ptr @pointer(ptr %entry.t, i64 {ENTRY_RESULT})
  call void @Py_IncRef(ptr %result)
  %thread = call ptr @PyEval_SaveThread()
  %run = call ptr @pointer(ptr %state, i64 {STATE_LAUNCH})
  call void %run(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  %raised = call ptr @PyErr_Occurred()       ; by a signal handler, which ended the grid
  %quiet = icmp eq ptr %raised, null
  br i1 %quiet, label %done, label %stopped
done:
  ret ptr %result
stopped:
  call void @Py_DecRef(ptr %result)
  ret ptr null
fail:
  ret ptr null

miss:
  %slow = call ptr @pointer(ptr %state, i64 {STATE_MISS})
  %slowly = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %slowly
}}
"""


def fastcall_ir() -> str:
    """The text of `tw_call`."""
    return "".join((_EXTERNALS, _HELPERS, _CALL))
