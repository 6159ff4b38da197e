"""LLVM IR of the first half of a launch: is this the call that an entry remembers, and what are the values?

    @part    the object that a column looks at in another; what is new to us is noted in `owned`, released at the end
    @fits    whether it is as the column asks; its value
    @matches all columns of an entry, and whether arrays are to each other what they were (`overlap.py`)
    @remembered  the entry among several for which that holds

Only exported functions of the interpreter are called. That an object's class is the word at `type_offset` is checked
when the code is loaded; so is that a tensor of torch lies behind the head of its object.
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t
from tilewright.backends.llvm.calls.overlap import OVERLAP
from tilewright.backends.llvm.calls.tensors import TENSORS

EXTERNALS = """
declare ptr @PyLong_AsVoidPtr(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare void @PyErr_Clear()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyDict_Copy(ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyCallable_Check(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare ptr @PyObject_Call(ptr, ptr, ptr)
declare ptr @PyObject_GetAttrString(ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_CallMethod(ptr, ptr, ptr, ...)
declare ptr @PyMethod_New(ptr, ptr)
declare ptr @PyCFunction_GetSelf(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""

_HELPERS = """
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

define internal i1 @is_of(ptr %object, ptr %type) alwaysinline {{
  %at = getelementptr i8, ptr %object, i64 {type_offset}
  %found = load ptr, ptr %at
  %same = icmp eq ptr %found, %type
  ret i1 %same
}}

; The number of programs of a grid.
define internal i64 @programs(ptr %grid) alwaysinline {{
  %x = call i64 @word(ptr %grid, i64 0)
  %y = call i64 @word(ptr %grid, i64 1)
  %z = call i64 @word(ptr %grid, i64 2)
  %plane = mul i64 %x, %y
  %all = mul i64 %plane, %z
  ret i64 %all
}}

; Call a Python function for what it does; false with an exception set.
define internal i1 @done_by(ptr %function, ptr %argv, i64 %n, ptr %names) alwaysinline {{
  %said = call ptr @PyObject_Vectorcall(ptr %function, ptr %argv, i64 %n, ptr %names)
  %angry = icmp eq ptr %said, null
  br i1 %angry, label %fail, label %heard
heard:
  call void @Py_DecRef(ptr %said)
  ret i1 true
fail:
  ret i1 false
}}

; References that a call holds: a count, then objects.
define internal void @own(ptr %owned, ptr %object) alwaysinline {{
  %n = load i64, ptr %owned
  %n.1 = add i64 %n, 1
  %to = getelementptr i64, ptr %owned, i64 %n.1
  store ptr %object, ptr %to
  store i64 %n.1, ptr %owned
  ret void
}}

define internal void @release(ptr %owned) {{
entry:
  br label %next
next:
  %n = load i64, ptr %owned
  %none = icmp eq i64 %n, 0
  br i1 %none, label %done, label %one
one:
  %from = getelementptr i64, ptr %owned, i64 %n
  %object = load ptr, ptr %from
  %n.1 = sub i64 %n, 1
  store i64 %n.1, ptr %owned
  call void @Py_DecRef(ptr %object)
  br label %next
done:
  ret void
}}
"""

_PART = f"""
; The object of a column that is a part of another's, or null.
define internal ptr @part(ptr %shared, ptr %column, i64 %source, i64 %name, ptr %objects, ptr %owned) {{
entry:
  %argv = alloca [2 x ptr]
  %name.p = inttoptr i64 %name to ptr
  %parent = call i64 @word(ptr %column, i64 {t.COLUMN_PARENT})
  %whole = call ptr @pointer(ptr %objects, i64 %parent)
  switch i64 %source, label %itself [ i64 {t.ITEM}, label %item
                                      i64 {t.LIST_ITEM}, label %list
                                      i64 {t.ATTRIBUTE}, label %attribute
                                      i64 {t.METHOD}, label %method
                                      i64 {t.HELPER}, label %helper
                                      i64 {t.CONSTANT}, label %constant
                                      i64 {t.MADE}, label %memory ]
itself:
  ret ptr %whole
constant:
  ret ptr %name.p
memory:
  %memory.o = call ptr @made(ptr %shared, ptr %name.p)
  br label %made
item:
  %item.o = call ptr @PyTuple_GetItem(ptr %whole, i64 %name)
  ret ptr %item.o
list:
  %list.o = call ptr @PyList_GetItem(ptr %whole, i64 %name)
  %out = icmp eq ptr %list.o, null
  br i1 %out, label %none, label %hold
hold:                                     ; a list may lose its items
  call void @Py_IncRef(ptr %list.o)
  br label %new
attribute:
  %attribute.o = call ptr @PyObject_GetAttr(ptr %whole, ptr %name.p)
  br label %made
method:
  store ptr %whole, ptr %argv
  %method.o = call ptr @PyObject_VectorcallMethod(ptr %name.p, ptr %argv, i64 1, ptr null)
  br label %made
helper:
  store ptr %whole, ptr %argv
  %helper.o = call ptr @PyObject_Vectorcall(ptr %name.p, ptr %argv, i64 1, ptr null)
  br label %made
made:
  %made.o = phi ptr [ %attribute.o, %attribute ], [ %method.o, %method ], [ %helper.o, %helper ], [ %memory.o, %memory ]
  %failed = icmp eq ptr %made.o, null
  br i1 %failed, label %none, label %new
new:
  %new.o = phi ptr [ %list.o, %hold ], [ %made.o, %made ]
  call void @own(ptr %owned, ptr %new.o)
  ret ptr %new.o
none:                                     ; the way through Python says why
  call void @PyErr_Clear()
  ret ptr null
}}
"""

_FITS = f"""
; Whether an object is what a column asks for; its value goes to %out.
define internal i1 @fits(ptr %shared, ptr %column, ptr %object, ptr %out) alwaysinline {{
entry:
  %over = alloca i32
  %kind = call i64 @word(ptr %column, i64 {t.COLUMN_KIND})
  %wanted = call ptr @pointer(ptr %column, i64 {t.COLUMN_WANTED})
  %mask = call i64 @word(ptr %column, i64 {t.COLUMN_MASK})
  %key = call i64 @word(ptr %column, i64 {t.COLUMN_KEY})
  %same = icmp eq ptr %object, %wanted
  %of.type = call i1 @is_of(ptr %object, ptr %wanted)
  switch i64 %kind, label %no [ i64 {t.TENSOR}, label %tensor
                                i64 {t.INTEGER}, label %whole
                                i64 {t.NUMBER}, label %whole
                                i64 {t.SAME}, label %compare
                                i64 {t.ANY}, label %yes
                                i64 {t.CLASS}, label %class
                                i64 {t.TUPLE}, label %tuple
                                i64 {t.LIST}, label %list
                                i64 {t.TEXT}, label %text
                                i64 {t.LAYOUT}, label %laid
                                i64 {t.WORD}, label %field
                                i64 {t.BOOLEAN}, label %boolean
                                i64 {t.ADDRESS}, label %raw
                                i64 {t.FLOAT32}, label %real
                                i64 {t.FLOAT64}, label %real
                                i64 {t.REAL}, label %real ]
class:
  ret i1 %of.type
compare:
  ret i1 %same
laid:
  br i1 %of.type, label %laid.read, label %no
laid.read:
  %as.laid = call i1 @is_laid_out(ptr %shared, ptr %object, i64 %key)
  ret i1 %as.laid
text:
  %unicode = call ptr @pointer(ptr %shared, i64 {t.SHARED_TEXT})
  br i1 %same, label %yes, label %text.class
text.class:
  %is.text = call i1 @is_of(ptr %object, ptr %unicode)
  br i1 %is.text, label %text.compare, label %no
text.compare:
  %order = call i32 @PyUnicode_Compare(ptr %object, ptr %wanted)
  %equal.text = icmp eq i32 %order, 0
  ret i1 %equal.text
field:
  %field.at = getelementptr i8, ptr %object, i64 %mask
  %field.w = load i64, ptr %field.at
  br label %address
boolean:
  %true = call ptr @pointer(ptr %shared, i64 {t.SHARED_TRUE})
  %truth = icmp eq ptr %object, %true
  %bit = zext i1 %truth to i64
  store i64 %bit, ptr %out
  ret i1 %of.type
tuple:
  br i1 %of.type, label %tuple.size, label %no
tuple.size:
  %tuple.n = call i64 @PyTuple_Size(ptr %object)
  %tuple.fine = icmp eq i64 %tuple.n, %key
  ret i1 %tuple.fine
list:
  br i1 %of.type, label %list.size, label %no
list.size:
  %list.n = call i64 @PyList_Size(ptr %object)
  %list.fine = icmp eq i64 %list.n, %key
  ret i1 %list.fine
tensor:
  br i1 %of.type, label %tensor.read, label %no
tensor.read:
  %facts.t = call i64 @tensor(ptr %shared, ptr %object, ptr %out)
  %tensor.fine = icmp eq i64 %facts.t, %key
  ret i1 %tensor.fine
whole:
  br i1 %of.type, label %whole.read, label %no
whole.read:
  %n = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %over)
  store i64 %n, ptr %out
  %beyond = load i32, ptr %over
  %in.64 = icmp eq i32 %beyond, 0
  %exact = icmp eq i64 %kind, {t.NUMBER}
  %bits = call i64 @integer(i64 %n)
  %masked = and i64 %bits, %mask
  %facts.n = select i1 %exact, i64 %n, i64 %masked
  %as.asked = icmp eq i64 %facts.n, %key
  %both = and i1 %in.64, %as.asked
  ret i1 %both
raw:
  br i1 %of.type, label %raw.read, label %no
raw.read:
  %raw.n = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  br label %address
address:
  %place = phi i64 [ %field.w, %field ], [ %raw.n, %raw.read ]
  store i64 %place, ptr %out
  %facts.a = call i64 @alignment(i64 %place)
  %some = icmp ne i64 %place, 0
  %right = icmp eq i64 %facts.a, %key
  %address.fine = and i1 %some, %right
  ret i1 %address.fine
real:
  br i1 %of.type, label %real.read, label %no
real.read:
  %real.v = call double @PyFloat_AsDouble(ptr %object)
  %pattern = bitcast double %real.v to i64
  %is.single = icmp eq i64 %kind, {t.FLOAT32}
  br i1 %is.single, label %single, label %double
double:
  store i64 %pattern, ptr %out
  %value.wanted = icmp eq i64 %kind, {t.REAL}
  %value.same = icmp eq i64 %pattern, %key
  %value.any = xor i1 %value.wanted, true
  %value.fine = or i1 %value.any, %value.same
  ret i1 %value.fine
single:
  %rounded = fptrunc double %real.v to float
  %pattern.32 = bitcast float %rounded to i32
  %pattern.64 = zext i32 %pattern.32 to i64
  store i64 %pattern.64, ptr %out
  ret i1 true
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_MATCHES = f"""
; Whether a call is the one that an entry remembers; values and objects of its columns are written.
define internal i1 @matches(ptr %shared, ptr %entry.t, ptr %args, i64 %nargs, ptr %kwnames, i64 %nkw,
                            ptr %values, ptr %objects, ptr %owned) {{
entry:
  %want.nargs = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NARGS})
  %want.nkw = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NKW})
  %same.nargs = icmp eq i64 %want.nargs, %nargs
  %same.nkw = icmp eq i64 %want.nkw, %nkw
  %same.shape = and i1 %same.nargs, %same.nkw
  %names = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_NAMES})
  br i1 %same.shape, label %name, label %no
name:
  %k = phi i64 [ 0, %entry ], [ %k.1, %name.one ]
  %all.names = icmp eq i64 %k, %nkw
  br i1 %all.names, label %columns, label %name.one
name.one:
  %given.name = call ptr @PyTuple_GetItem(ptr %kwnames, i64 %k)
  %want.name = call ptr @pointer(ptr %names, i64 %k)
  %k.1 = add i64 %k, 1
  %same.name = icmp eq ptr %given.name, %want.name
  br i1 %same.name, label %name, label %no
columns:
  %ncols = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NCOLS})
  %table = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_COLUMNS})
  br label %column
column:
  %i = phi i64 [ 0, %columns ], [ %i.1, %check ]
  %all.columns = icmp eq i64 %i, %ncols
  br i1 %all.columns, label %pairs, label %column.one
column.one:
  %i.1 = add i64 %i, 1
  %place = mul i64 %i, {t.COLUMN_WORDS}
  %asked = getelementptr i64, ptr %table, i64 %place
  %source = call i64 @word(ptr %asked, i64 {t.COLUMN_SOURCE})
  %name.w = call i64 @word(ptr %asked, i64 {t.COLUMN_NAME})
  %plain = icmp eq i64 %source, {t.ARGUMENT}
  br i1 %plain, label %argument, label %part
argument:
  %argument.at = getelementptr ptr, ptr %args, i64 %name.w
  %argument.o = load ptr, ptr %argument.at
  br label %check
part:
  %part.o = call ptr @part(ptr %shared, ptr %asked, i64 %source, i64 %name.w, ptr %objects, ptr %owned)
  %missing = icmp eq ptr %part.o, null
  br i1 %missing, label %no, label %check
check:
  %object = phi ptr [ %argument.o, %argument ], [ %part.o, %part ]
  %object.to = getelementptr ptr, ptr %objects, i64 %i
  store ptr %object, ptr %object.to
  %value.to = getelementptr i64, ptr %values, i64 %i
  %fine = call i1 @fits(ptr %shared, ptr %asked, ptr %object, ptr %value.to)
  br i1 %fine, label %column, label %no
pairs:
  %npairs = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NPAIRS})
  %layout = call i64 @word(ptr %shared, i64 {t.SHARED_LAYOUT})
  %pair.table = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_PAIRS})
  br label %pair
pair:
  %j = phi i64 [ 0, %pairs ], [ %j.1, %pair.one ]
  %all.pairs = icmp eq i64 %j, %npairs
  br i1 %all.pairs, label %yes, label %pair.one
pair.one:
  %j.1 = add i64 %j, 1
  %row = mul i64 %j, {t.PAIR_WORDS}
  %pair.at = getelementptr i64, ptr %pair.table, i64 %row
  %one = call i64 @word(ptr %pair.at, i64 {t.PAIR_ONE})
  %other = call i64 @word(ptr %pair.at, i64 {t.PAIR_OTHER})
  %wanted = call i64 @word(ptr %pair.at, i64 {t.PAIR_RELATION})
  %one.row = mul i64 %one, {t.COLUMN_WORDS}
  %other.row = mul i64 %other, {t.COLUMN_WORDS}
  %one.c = getelementptr i64, ptr %table, i64 %one.row
  %other.c = getelementptr i64, ptr %table, i64 %other.row
  %one.o = call ptr @pointer(ptr %objects, i64 %one)
  %other.o = call ptr @pointer(ptr %objects, i64 %other)
  %one.v = getelementptr i64, ptr %values, i64 %one
  %other.v = getelementptr i64, ptr %values, i64 %other
  %found = call i64 @relation(ptr %shared, i64 %layout, ptr %one.c, ptr %one.o, ptr %one.v,
                              ptr %other.c, ptr %other.o, ptr %other.v)
  %as.known = icmp eq i64 %found, %wanted
  br i1 %as.known, label %pair, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_REMEMBERED = f"""
; The entry that remembers a call, among those of a chain: two words, the first of them and the last that fitted; null
; where none does.
define internal ptr @remembered(ptr %shared, ptr %chain, ptr %args, i64 %nargs, ptr %kwnames,
                                ptr %values, ptr %objects, ptr %owned) {{
entry:
  store i64 0, ptr %owned
  %no.names = icmp eq ptr %kwnames, null
  br i1 %no.names, label %search, label %count
count:
  %named = call i64 @PyTuple_Size(ptr %kwnames)
  br label %search
search:
  %nkw = phi i64 [ 0, %entry ], [ %named, %count ]
  %last = call ptr @pointer(ptr %chain, i64 1)
  br label %try
try:
  %entry.t = phi ptr [ %last, %search ], [ %first, %over ], [ %following, %next.one ]
  %again = phi i1 [ false, %search ], [ true, %over ], [ true, %next.one ]
  %none = icmp eq ptr %entry.t, null
  br i1 %none, label %end, label %compare
end:
  br i1 %again, label %unknown, label %over
over:                                     ; after the last one that fitted: all
  %first = call ptr @pointer(ptr %chain, i64 0)
  br label %try
compare:
  %fine = call i1 @matches(ptr %shared, ptr %entry.t, ptr %args, i64 %nargs, ptr %kwnames, i64 %nkw,
                           ptr %values, ptr %objects, ptr %owned)
  br i1 %fine, label %found, label %next
next:
  call void @release(ptr %owned)
  br i1 %again, label %next.one, label %over
next.one:
  %following = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_NEXT})
  br label %try
found:
  %last.at = getelementptr i64, ptr %chain, i64 1
  store ptr %entry.t, ptr %last.at
  ret ptr %entry.t
unknown:
  ret ptr null
}}
"""


def matching_ir(type_offset: int) -> str:
    """The text of `@matches` and what it calls.

    Args:
        type_offset: where an object has its class.
    """
    helpers = _HELPERS.format(type_offset=type_offset)
    return "".join((EXTERNALS, helpers, TENSORS, _PART, _FITS, OVERLAP, _MATCHES, _REMEMBERED))
