"""LLVM IR that launches a call whose values are known.

@direct    packs the block that the back end describes, asks for threads or the stream, and calls its function
           without the lock of the interpreter
@through   calls a Python function with the values
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

_DIRECT = f"""
; Pack the block and launch without the lock of the interpreter; false with an exception set. A stream of -1 is not
; given; on a CPU there is none.
define internal i1 @direct(ptr %entry.t, ptr %values, ptr %grid, i64 %stream.given) {{
entry:
  %block = alloca [{t.MOST_BYTES} x i8], align 16
  %argv = alloca [4 x ptr]
  %stream.at = alloca i64
  %gx = call i64 @word(ptr %grid, i64 0)
  %gy = call i64 @word(ptr %grid, i64 1)
  %gz = call i64 @word(ptr %grid, i64 2)
  %total = call i64 @programs(ptr %grid)
  %empty = icmp eq i64 %total, 0
  br i1 %empty, label %done, label %some
done:
  ret i1 true
some:
  %serial = call i64 @word(ptr %entry.t, i64 {t.ENTRY_SERIAL})
  %fixed = call i64 @word(ptr %entry.t, i64 {t.ENTRY_FIXED})
  %alone = icmp ult i64 %total, %serial
  %queued = call i64 @word(ptr %entry.t, i64 {t.ENTRY_ON_GPU})
  %has.queue = icmp ne i64 %queued, 0
  %named = icmp ne i64 %stream.given, -1
  %chosen = and i1 %has.queue, %named
  br i1 %chosen, label %scratch, label %unnamed
unnamed:
  br i1 %alone, label %scratch, label %whose
whose:
  %streams = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_STREAMS})
  %in.python = icmp eq ptr %streams, null
  br i1 %in.python, label %ask, label %stream
stream:
  %gpu = call i64 @word(ptr %entry.t, i64 {t.ENTRY_GPU})
  %gpu.32 = trunc i64 %gpu to i32
  %code.s = call i32 %streams(i32 %gpu.32, ptr %stream.at)
  %stream.n = load i64, ptr %stream.at
  %no.stream = icmp ne i32 %code.s, 0
  br i1 %no.stream, label %ask, label %scratch
ask:
  %teller = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_TELLER})
  %told = call ptr @PyObject_CallNoArgs(ptr %teller)
  %untold = icmp eq ptr %told, null
  br i1 %untold, label %fail, label %number
number:
  %told.n = call i64 @PyLong_AsUnsignedLongLongMask(ptr %told)
  call void @Py_DecRef(ptr %told)
  br label %scratch
scratch:
  %second = phi i64 [ %stream.given, %some ], [ %fixed, %unnamed ], [ %stream.n, %stream ], [ %told.n, %number ]
  %each = call i64 @word(ptr %entry.t, i64 {t.ENTRY_SCRATCH})
  %spare = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_SPARE})
  %none.needed = icmp eq i64 %each, 0
  br i1 %none.needed, label %pack, label %spared
spared:                                   ; with the lock of the interpreter held
  %need = mul i64 %each, %second
  %spare.bytes = call i64 @word(ptr %spare, i64 {t.SPARE_BYTES})
  %spare.taken = call i64 @word(ptr %spare, i64 {t.SPARE_TAKEN})
  %spare.taken.at = getelementptr i64, ptr %spare, i64 {t.SPARE_TAKEN}
  %large = icmp uge i64 %spare.bytes, %need
  %idle = icmp eq i64 %spare.taken, 0
  %own = and i1 %large, %idle
  br i1 %own, label %take, label %borrow
take:
  %spare.address = call i64 @word(ptr %spare, i64 {t.SPARE_ADDRESS})
  store i64 1, ptr %spare.taken.at
  br label %pack
borrow:
  %lender = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_BORROW})
  %need.o = call ptr @PyLong_FromUnsignedLongLong(i64 %need)
  store ptr %need.o, ptr %argv
  %lent = call ptr @PyObject_Vectorcall(ptr %lender, ptr %argv, i64 1, ptr null)
  call void @Py_DecRef(ptr %need.o)
  %unlent = icmp eq ptr %lent, null
  br i1 %unlent, label %fail, label %lend
lend:
  %lent.address = call i64 @PyLong_AsUnsignedLongLongMask(ptr %lent)
  br label %pack
pack:
  %arena = phi i64 [ 0, %scratch ], [ %spare.address, %take ], [ %lent.address, %lend ]
  %held = phi ptr [ null, %scratch ], [ null, %take ], [ %lent, %lend ]
  %taken = phi i1 [ false, %scratch ], [ true, %take ], [ false, %lend ]
  %record = call i64 @word(ptr %entry.t, i64 {t.ENTRY_RECORD})
  store i64 %record, ptr %block
  %b.1 = getelementptr i64, ptr %block, i64 1
  store i64 %second, ptr %b.1
  %b.2 = getelementptr i64, ptr %block, i64 2
  store i64 %arena, ptr %b.2
  %nslots = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NSLOTS})
  %slots = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_SLOTS})
  br label %slot
slot:
  %s = phi i64 [ 0, %pack ], [ %s.1, %stored ]
  %packed = icmp eq i64 %s, %nslots
  br i1 %packed, label %place, label %slot.one
slot.one:
  %s.1 = add i64 %s, 1
  %row.i = mul i64 %s, {t.SLOT_WORDS}
  %row = getelementptr i64, ptr %slots, i64 %row.i
  %column = call i64 @word(ptr %row, i64 {t.SLOT_COLUMN})
  %offset = call i64 @word(ptr %row, i64 {t.SLOT_OFFSET})
  %size = call i64 @word(ptr %row, i64 {t.SLOT_SIZE})
  %v = call i64 @word(ptr %values, i64 %column)
  %to = getelementptr i8, ptr %block, i64 %offset
  switch i64 %size, label %eight [ i64 4, label %four
                                   i64 2, label %two
                                   i64 1, label %one ]
eight:
  store i64 %v, ptr %to
  br label %stored
four:
  %v.4 = trunc i64 %v to i32
  store i32 %v.4, ptr %to
  br label %stored
two:
  %v.2 = trunc i64 %v to i16
  store i16 %v.2, ptr %to
  br label %stored
one:
  %v.1 = trunc i64 %v to i8
  store i8 %v.1, ptr %to
  br label %stored
stored:
  br label %slot
place:                                    ; the CPU: three words behind the slots; a GPU: three halves before them
  %on.gpu = call i64 @word(ptr %entry.t, i64 {t.ENTRY_ON_GPU})
  %is.gpu = icmp ne i64 %on.gpu, 0
  br i1 %is.gpu, label %halves, label %words
words:
  %behind = shl i64 %nslots, 3
  %behind.24 = add i64 %behind, 24
  %w.x = getelementptr i8, ptr %block, i64 %behind.24
  store i64 %gx, ptr %w.x
  %w.y = getelementptr i64, ptr %w.x, i64 1
  store i64 %gy, ptr %w.y
  %w.z = getelementptr i64, ptr %w.x, i64 2
  store i64 %gz, ptr %w.z
  br label %go
halves:
  %cluster = call i64 @word(ptr %entry.t, i64 {t.ENTRY_CLUSTER})
  %gx.c = mul i64 %gx, %cluster
  %h.x = trunc i64 %gx.c to i32
  store i32 %h.x, ptr %b.2
  %h.y.at = getelementptr i32, ptr %b.2, i64 1
  %h.y = trunc i64 %gy to i32
  store i32 %h.y, ptr %h.y.at
  %h.z.at = getelementptr i32, ptr %b.2, i64 2
  %h.z = trunc i64 %gz to i32
  store i32 %h.z, ptr %h.z.at
  br label %go
go:
  %maps = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_MAPS})
  %unmapped = icmp eq ptr %maps, null
  br i1 %unmapped, label %aim, label %maps.there
maps.there:
  %maps.known = call i64 @word(ptr %maps, i64 {t.MAPS_KNOWN})
  %maps.keys = call ptr @pointer(ptr %maps, i64 {t.MAPS_KEYS})
  %maps.nkeys = call i64 @word(ptr %maps, i64 {t.MAPS_NKEYS})
  %maps.never = icmp eq i64 %maps.known, 0
  br i1 %maps.never, label %describe, label %key
key:
  %key.i = phi i64 [ 0, %maps.there ], [ %key.next, %key.one ], [ %key.next, %keep ]
  %key.end = icmp eq i64 %key.i, %maps.nkeys
  br i1 %key.end, label %map, label %key.one
key.one:
  %key.next = add i64 %key.i, 1
  %key.row = mul i64 %key.i, {t.MAP_WORDS}
  %key.at = getelementptr i64, ptr %maps.keys, i64 %key.row
  %key.column = call i64 @word(ptr %key.at, i64 {t.MAP_COLUMN})
  %key.kept = call i64 @word(ptr %key.at, i64 {t.MAP_VALUE})
  %key.now = call i64 @word(ptr %values, i64 %key.column)
  %key.same = icmp eq i64 %key.now, %key.kept
  br i1 %key.same, label %key, label %other
other:
  %key.place = call i64 @word(ptr %key.at, i64 {t.MAP_PLACE})
  %key.size = icmp slt i64 %key.place, 0
  br i1 %key.size, label %describe, label %move
move:                                     ; another tensor of the same sizes and strides
  %move.image = call ptr @pointer(ptr %maps, i64 {t.MAPS_IMAGE})
  %move.map = getelementptr i64, ptr %move.image, i64 %key.place
  %move.to = inttoptr i64 %key.now to ptr
  %mover = call ptr @pointer(ptr %maps, i64 {t.MAPS_MOVE})
  %move.code = call i32 %mover(ptr %move.map, ptr %move.to)
  %moved = icmp eq i32 %move.code, 0
  br i1 %moved, label %keep, label %describe
keep:
  %kept.at = getelementptr i64, ptr %key.at, i64 {t.MAP_VALUE}
  store i64 %key.now, ptr %kept.at
  br label %key
describe:                                 ; and look again: another thread may describe its own meanwhile
  %describer = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_DESCRIBE})
  %values.n = ptrtoint ptr %values to i64
  %values.o = call ptr @PyLong_FromUnsignedLongLong(i64 %values.n)
  store ptr %values.o, ptr %argv
  %described = call ptr @PyObject_Vectorcall(ptr %describer, ptr %argv, i64 1, ptr null)
  call void @Py_DecRef(ptr %values.o)
  %undescribed = icmp eq ptr %described, null
  br i1 %undescribed, label %fail, label %again
again:
  call void @Py_DecRef(ptr %described)
  br label %maps.there
map:
  %image = call ptr @pointer(ptr %maps, i64 {t.MAPS_IMAGE})
  %image.words = call i64 @word(ptr %maps, i64 {t.MAPS_NIMAGE})
  %image.offset = call i64 @word(ptr %maps, i64 {t.MAPS_OFFSET})
  %image.to = getelementptr i8, ptr %block, i64 %image.offset
  %maps.record = call i64 @word(ptr %maps, i64 {t.MAPS_RECORD})
  store i64 %maps.record, ptr %block
  %image.none = icmp eq i64 %image.words, 0
  br i1 %image.none, label %aim, label %copy
copy:
  %copy.i = phi i64 [ 0, %map ], [ %copy.next, %copy ]
  %copy.next = add i64 %copy.i, 1
  %copy.from = getelementptr i64, ptr %image, i64 %copy.i
  %copy.word = load i64, ptr %copy.from
  %copy.to = getelementptr i64, ptr %image.to, i64 %copy.i
  store i64 %copy.word, ptr %copy.to
  %copied = icmp eq i64 %copy.next, %image.words
  br i1 %copied, label %aim, label %copy
aim:
  %run = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_RUN})
  %mark = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_MARK})
  %unmarked = icmp eq ptr %mark, null
  br i1 %unmarked, label %launch, label %note
note:
  %marked = call i64 @word(ptr %entry.t, i64 {t.ENTRY_MARKED})
  store i64 %marked, ptr %mark
  br label %launch
launch:
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %run(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  br i1 %taken, label %return, label %borrowed
return:
  %spare.free = getelementptr i64, ptr %spare, i64 {t.SPARE_TAKEN}
  store i64 0, ptr %spare.free
  br label %back
borrowed:
  %is.held = icmp ne ptr %held, null
  br i1 %is.held, label %drop, label %back
drop:                                     ; which gives it back
  call void @Py_DecRef(ptr %held)
  br label %back
back:
  %raised = call ptr @PyErr_Occurred()    ; by a signal handler, which ended the grid
  %quiet = icmp eq ptr %raised, null
  br i1 %quiet, label %judge, label %fail
judge:
  %failed = icmp ne i32 %code, 0
  %wrong = and i1 %is.gpu, %failed
  br i1 %wrong, label %explain, label %done
explain:
  %code.64 = zext i32 %code to i64
  %explainer = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_EXPLAIN})
  %o.code = call ptr @PyLong_FromUnsignedLongLong(i64 %code.64)
  %o.x = call ptr @PyLong_FromUnsignedLongLong(i64 %gx)
  %o.y = call ptr @PyLong_FromUnsignedLongLong(i64 %gy)
  %o.z = call ptr @PyLong_FromUnsignedLongLong(i64 %gz)
  store ptr %o.code, ptr %argv
  %argv.1 = getelementptr ptr, ptr %argv, i64 1
  store ptr %o.x, ptr %argv.1
  %argv.2 = getelementptr ptr, ptr %argv, i64 2
  store ptr %o.y, ptr %argv.2
  %argv.3 = getelementptr ptr, ptr %argv, i64 3
  store ptr %o.z, ptr %argv.3
  %never = call ptr @PyObject_Vectorcall(ptr %explainer, ptr %argv, i64 4, ptr null)
  call void @Py_DecRef(ptr %o.code)
  call void @Py_DecRef(ptr %o.x)
  call void @Py_DecRef(ptr %o.y)
  call void @Py_DecRef(ptr %o.z)
  br label %fail
fail:
  ret i1 false
}}
"""

_THROUGH = f"""
; Launch by a Python function, (gx, gy, gz, *values); false with an exception set.
define internal i1 @through(ptr %entry.t, ptr %values, ptr %objects, ptr %grid, ptr %owned) {{
entry:
  %argv = alloca [{t.MOST_COLUMNS + 3} x ptr]
  %total = call i64 @programs(ptr %grid)
  %empty = icmp eq i64 %total, 0
  br i1 %empty, label %done, label %axis
axis:
  %i = phi i64 [ 0, %entry ], [ %i.1, %axis ]
  %n = call i64 @word(ptr %grid, i64 %i)
  %n.o = call ptr @PyLong_FromUnsignedLongLong(i64 %n)
  call void @own(ptr %owned, ptr %n.o)
  %n.to = getelementptr ptr, ptr %argv, i64 %i
  store ptr %n.o, ptr %n.to
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, 3
  br i1 %more, label %axis, label %pass
pass:
  %nslots = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NSLOTS})
  %slots = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_SLOTS})
  br label %slot
slot:
  %s = phi i64 [ 0, %pass ], [ %s.1, %stored ]
  %at = add i64 3, %s
  %packed = icmp eq i64 %s, %nslots
  br i1 %packed, label %go, label %slot.one
slot.one:
  %s.1 = add i64 %s, 1
  %row.i = mul i64 %s, {t.SLOT_WORDS}
  %row = getelementptr i64, ptr %slots, i64 %row.i
  %column = call i64 @word(ptr %row, i64 {t.SLOT_COLUMN})
  %size = call i64 @word(ptr %row, i64 {t.SLOT_SIZE})
  %as.object = icmp eq i64 %size, 0
  br i1 %as.object, label %itself, label %number
itself:
  %object = call ptr @pointer(ptr %objects, i64 %column)
  br label %stored
number:
  %v = call i64 @word(ptr %values, i64 %column)
  %v.o = call ptr @PyLong_FromUnsignedLongLong(i64 %v)
  call void @own(ptr %owned, ptr %v.o)
  br label %stored
stored:
  %passed = phi ptr [ %object, %itself ], [ %v.o, %number ]
  %to = getelementptr ptr, ptr %argv, i64 %at
  store ptr %passed, ptr %to
  br label %slot
go:
  %call = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_CALL})
  %well = call i1 @done_by(ptr %call, ptr %argv, i64 %at, ptr null)
  ret i1 %well
done:
  ret i1 true
}}
"""

LAUNCHING = _DIRECT + _THROUGH
