"""LLVM IR that tells what two arrays of a call are to each other: apart, one address, or overlapping.

    @reach     how far an array goes from the address of its first element
    @relation  of the arrays of two columns
    tw_apart(self, args, nargs)      METH_FASTCALL: (*arrays), True where no two of them have a byte in common

Shapes and strides are read where arrays of numpy and tensors of torch have them (`launch/native/machine.py` looks for
the place), else from torch's description for DLPack.
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

_REACH = f"""
; Bytes below the first element of an array (not positive), and above, as words at %out.
define internal void @walk(i64 %rank, ptr %shape, ptr %strides, i64 %unit, i64 %size, ptr %out) alwaysinline {{
entry:
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %d.1, %some ]
  %low = phi i64 [ 0, %entry ], [ %low.1, %some ]
  %high = phi i64 [ %size, %entry ], [ %high.1, %some ]
  %all = icmp uge i64 %d, %rank
  br i1 %all, label %done, label %axis
axis:
  %n = call i64 @word(ptr %shape, i64 %d)
  %stride = call i64 @word(ptr %strides, i64 %d)
  %none = icmp eq i64 %n, 0
  br i1 %none, label %empty, label %some
some:
  %d.1 = add i64 %d, 1
  %last = sub i64 %n, 1
  %bytes = mul i64 %stride, %unit
  %way = mul i64 %last, %bytes
  %down = call i64 @llvm.smin.i64(i64 %way, i64 0)
  %up = call i64 @llvm.smax.i64(i64 %way, i64 0)
  %low.1 = add i64 %low, %down
  %high.1 = add i64 %high, %up
  br label %next
empty:
  br label %done
done:
  %low.r = phi i64 [ %low, %next ], [ 0, %empty ]
  %high.r = phi i64 [ %high, %next ], [ 0, %empty ]
  %high.to = getelementptr i64, ptr %out, i64 1
  store i64 %low.r, ptr %out
  store i64 %high.r, ptr %high.to
  ret void
}}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; Bytes from the first element of a tensor of torch to behind the last one: a rank, then shape and strides of up to
; five axes, or where they are.
define internal i64 @extent_of(ptr %shared, i64 %layout, ptr %object, i64 %size) alwaysinline {{
entry:
  %cdata = call i64 @word(ptr %shared, i64 {t.SHARED_CDATA})
  %handle = getelementptr i8, ptr %object, i64 %cdata
  %inner = load ptr, ptr %handle
  %fields = getelementptr i8, ptr %inner, i64 %layout
  %rank = load i64, ptr %fields
  %near.shape = getelementptr i64, ptr %fields, i64 1
  %near.strides = getelementptr i64, ptr %fields, i64 {1 + t.INLINE_AXES}
  %far = icmp ugt i64 %rank, {t.INLINE_AXES}
  br i1 %far, label %elsewhere, label %walk
elsewhere:
  %far.shape = load ptr, ptr %near.shape
  %far.strides = getelementptr i64, ptr %far.shape, i64 %rank
  br label %walk
walk:
  %shape = phi ptr [ %near.shape, %entry ], [ %far.shape, %elsewhere ]
  %strides = phi ptr [ %near.strides, %entry ], [ %far.strides, %elsewhere ]
  br label %next
next:
  %d = phi i64 [ 0, %walk ], [ %d.1, %some ]
  %steps = phi i64 [ 1, %walk ], [ %steps.1, %some ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %done, label %axis
axis:
  %n = call i64 @word(ptr %shape, i64 %d)
  %stride = call i64 @word(ptr %strides, i64 %d)
  %none = icmp eq i64 %n, 0
  br i1 %none, label %done, label %some
some:
  %d.1 = add i64 %d, 1
  %last = sub i64 %n, 1
  %way = mul i64 %last, %stride
  %steps.1 = add i64 %steps, %way
  br label %next
done:
  %elements = phi i64 [ %steps, %next ], [ 0, %axis ]
  %bytes = mul i64 %elements, %size
  ret i64 %bytes
}}

; The same of the array that a column has found.
define internal void @reach(ptr %shared, ptr %column, ptr %object, ptr %value, ptr %out) {{
entry:
  %described = alloca [8 x i64], align 16
  %kind = call i64 @word(ptr %column, i64 {t.COLUMN_KIND})
  %size = call i64 @word(ptr %column, i64 {t.COLUMN_SIZE})
  switch i64 %kind, label %address [ i64 {t.TENSOR}, label %tensor
                                     i64 {t.WORD}, label %array ]
tensor:
  %layout = call i64 @word(ptr %shared, i64 {t.SHARED_LAYOUT})
  %unknown = icmp eq i64 %layout, 0
  br i1 %unknown, label %exchange, label %known
known:
  %high.t = call i64 @extent_of(ptr %shared, i64 %layout, ptr %object, i64 %size)
  br label %found
exchange:
  %exchange.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_EXCHANGE})
  %mute = icmp eq ptr %exchange.f, null
  br i1 %mute, label %anywhere, label %describe
describe:
  %code = call i32 %exchange.f(ptr %object, ptr %described)
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %clear, label %taken
taken:
  %rank.p = getelementptr i8, ptr %described, i64 16
  %rank.i = load i32, ptr %rank.p
  %rank.x = zext i32 %rank.i to i64
  %shape.x = call ptr @pointer(ptr %described, i64 3)
  %strides.x = call ptr @pointer(ptr %described, i64 4)
  call void @walk(i64 %rank.x, ptr %shape.x, ptr %strides.x, i64 %size, i64 %size, ptr %out)
  ret void
array:                                    ; of numpy: address, rank, shape, strides in bytes
  %offset = call i64 @word(ptr %column, i64 {t.COLUMN_MASK})
  %fields = getelementptr i8, ptr %object, i64 %offset
  %rank.n.p = getelementptr i8, ptr %fields, i64 8
  %rank.n.i = load i32, ptr %rank.n.p
  %rank.n = zext i32 %rank.n.i to i64
  %shape.n = call ptr @pointer(ptr %fields, i64 2)
  %strides.n = call ptr @pointer(ptr %fields, i64 3)
  call void @walk(i64 %rank.n, ptr %shape.n, ptr %strides.n, i64 1, i64 %size, ptr %out)
  ret void
address:
  %told = icmp eq i64 %size, 0            ; by the columns behind it
  %low.c = call i64 @word(ptr %value, i64 1)
  %high.c = call i64 @word(ptr %value, i64 2)
  %low.a = select i1 %told, i64 %low.c, i64 0
  %high.a = select i1 %told, i64 %high.c, i64 %size
  br label %found
clear:
  call void @PyErr_Clear()
  br label %anywhere
anywhere:
  br label %found
found:
  %low = phi i64 [ %low.a, %address ], [ 0, %known ], [ {-(1 << 62)}, %anywhere ]
  %high = phi i64 [ %high.a, %address ], [ %high.t, %known ], [ {1 << 62}, %anywhere ]
  %high.to = getelementptr i64, ptr %out, i64 1
  store i64 %low, ptr %out
  store i64 %high, ptr %high.to
  ret void
}}
"""

_RELATION = f"""
; What the arrays of two columns are to each other; %value.a and %value.b are where their addresses are.
define internal i64 @relation(ptr %shared, i64 %layout, ptr %column.a, ptr %object.a, ptr %value.a,
                              ptr %column.b, ptr %object.b, ptr %value.b) alwaysinline {{
entry:
  %a = load i64, ptr %value.a
  %b = load i64, ptr %value.b
  %kind.a = call i64 @word(ptr %column.a, i64 {t.COLUMN_KIND})
  %kind.b = call i64 @word(ptr %column.b, i64 {t.COLUMN_KIND})
  %same = icmp eq i64 %a, %b
  br i1 %same, label %equal, label %differ
equal:
  %some = icmp ne i64 %a, 0
  %one = select i1 %some, i64 {t.PAIR_EQUAL}, i64 {t.PAIR_APART}
  br label %found
differ:
  %tensor.a = icmp eq i64 %kind.a, {t.TENSOR}
  %tensor.b = icmp eq i64 %kind.b, {t.TENSOR}
  %can = icmp ne i64 %layout, 0
  %both = and i1 %tensor.a, %tensor.b
  %quick = and i1 %both, %can
  br i1 %quick, label %tensors, label %exact
tensors:                                  ; which go up only
  %below = icmp ult i64 %a, %b
  %column.l = select i1 %below, ptr %column.a, ptr %column.b
  %object.l = select i1 %below, ptr %object.a, ptr %object.b
  %l = select i1 %below, i64 %a, i64 %b
  %u = select i1 %below, i64 %b, i64 %a
  %distance = sub i64 %u, %l
  %size = call i64 @word(ptr %column.l, i64 {t.COLUMN_SIZE})
  %up = call i64 @extent_of(ptr %shared, i64 %layout, ptr %object.l, i64 %size)
  %reached = icmp ugt i64 %up, %distance
  %how.t = select i1 %reached, i64 {t.PAIR_MEETING}, i64 {t.PAIR_APART}
  br label %found
exact:
  %how.e = call i64 @exact_relation(ptr %shared, ptr %column.a, ptr %object.a, ptr %value.a,
                                    ptr %column.b, ptr %object.b, ptr %value.b)
  br label %found
found:
  %how = phi i64 [ %one, %equal ], [ %how.t, %tensors ], [ %how.e, %exact ]
  ret i64 %how
}}

define internal i64 @exact_relation(ptr %shared, ptr %column.a, ptr %object.a, ptr %value.a,
                                    ptr %column.b, ptr %object.b, ptr %value.b) noinline {{
  %of.a = alloca [2 x i64]
  %of.b = alloca [2 x i64]
  %a = load i64, ptr %value.a
  %b = load i64, ptr %value.b
  call void @reach(ptr %shared, ptr %column.a, ptr %object.a, ptr %value.a, ptr %of.a)
  call void @reach(ptr %shared, ptr %column.b, ptr %object.b, ptr %value.b, ptr %of.b)
  %down.a = call i64 @word(ptr %of.a, i64 0)
  %down.b = call i64 @word(ptr %of.b, i64 0)
  %up.a = call i64 @word(ptr %of.a, i64 1)
  %up.b = call i64 @word(ptr %of.b, i64 1)
  %low.a = add i64 %a, %down.a
  %low.b = add i64 %b, %down.b
  %high.a = add i64 %a, %up.a
  %high.b = add i64 %b, %up.b
  %low = call i64 @llvm.smax.i64(i64 %low.a, i64 %low.b)
  %high = call i64 @llvm.smin.i64(i64 %high.a, i64 %high.b)
  %meet = icmp slt i64 %low, %high
  %how = select i1 %meet, i64 {t.PAIR_MEETING}, i64 {t.PAIR_APART}
  ret i64 %how
}}
"""

_MOST = 32  # arrays that `tw_apart` looks at
_WORDS = t.COLUMN_WORDS

_APART = f"""
define ptr @tw_apart(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %values = alloca [{_MOST} x i64]
  %columns = alloca [{_MOST * _WORDS} x i64]
  %shared = call ptr @PyLong_AsVoidPtr(ptr %self)
  %ndarray = call ptr @pointer(ptr %shared, i64 {t.SHARED_NDARRAY})
  %tensor.c = call ptr @pointer(ptr %shared, i64 {t.SHARED_TENSOR})
  %parameter.c = call ptr @pointer(ptr %shared, i64 {t.SHARED_PARAMETER})
  %element.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_ELEMENT})
  %layout = call i64 @word(ptr %shared, i64 {t.SHARED_LAYOUT})
  %few = icmp ule i64 %nargs, {_MOST}
  br i1 %few, label %one, label %no
one:
  %i = phi i64 [ 0, %entry ], [ %i.1, %compared ]
  %all = icmp eq i64 %i, %nargs
  br i1 %all, label %yes, label %look
look:
  %i.1 = add i64 %i, 1
  %object = call ptr @pointer(ptr %args, i64 %i)
  %value.i = getelementptr i64, ptr %values, i64 %i
  %row.i = mul i64 %i, {_WORDS}
  %column.i = getelementptr i64, ptr %columns, i64 %row.i
  %kind.to = getelementptr i64, ptr %column.i, i64 {t.COLUMN_KIND}
  %size.to = getelementptr i64, ptr %column.i, i64 {t.COLUMN_SIZE}
  %mask.to = getelementptr i64, ptr %column.i, i64 {t.COLUMN_MASK}
  %is.array = call i1 @is_of(ptr %object, ptr %ndarray)
  br i1 %is.array, label %array, label %class
array:
  %offset = call i64 @word(ptr %shared, i64 {t.SHARED_NDARRAY_DATA})
  %data.at = getelementptr i8, ptr %object, i64 %offset
  %data = load i64, ptr %data.at
  store i64 %data, ptr %value.i
  store i64 {t.WORD}, ptr %kind.to
  store i64 16, ptr %size.to              ; no element is larger
  store i64 %offset, ptr %mask.to
  br label %others
class:
  %is.tensor = call i1 @is_of(ptr %object, ptr %tensor.c)
  %is.parameter = call i1 @is_of(ptr %object, ptr %parameter.c)
  %is.torch = or i1 %is.tensor, %is.parameter
  %sized = icmp ne ptr %element.f, null
  %known = and i1 %is.torch, %sized
  br i1 %known, label %tensor, label %no
tensor:
  %facts = call i64 @tensor(ptr %shared, ptr %object, ptr %value.i)
  %nowhere = icmp eq i64 %facts, 0
  br i1 %nowhere, label %no, label %size
size:
  %dtype = trunc i64 %facts to i32
  %bytes = call i64 %element.f(i32 %dtype)
  store i64 {t.TENSOR}, ptr %kind.to
  store i64 %bytes, ptr %size.to
  br label %others
others:
  %j = phi i64 [ 0, %array ], [ 0, %size ], [ %j.1, %other ]
  %each = icmp eq i64 %j, %i
  br i1 %each, label %compared, label %other
other:
  %j.1 = add i64 %j, 1
  %object.j = call ptr @pointer(ptr %args, i64 %j)
  %value.j = getelementptr i64, ptr %values, i64 %j
  %row.j = mul i64 %j, {_WORDS}
  %column.j = getelementptr i64, ptr %columns, i64 %row.j
  %how = call i64 @relation(ptr %shared, i64 %layout, ptr %column.j, ptr %object.j, ptr %value.j,
                            ptr %column.i, ptr %object, ptr %value.i)
  %is.apart = icmp eq i64 %how, {t.PAIR_APART}
  br i1 %is.apart, label %others, label %no
compared:
  br label %one
yes:
  br label %say
no:
  br label %say
say:
  %word = phi i64 [ {t.SHARED_TRUE}, %yes ], [ {t.SHARED_FALSE}, %no ]
  %answer = call ptr @pointer(ptr %shared, i64 %word)
  call void @Py_IncRef(ptr %answer)
  ret ptr %answer
}}
"""

OVERLAP = _REACH + _RELATION + _APART
"""The text; it calls `matching.py`'s functions."""
