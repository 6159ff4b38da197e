"""LLVM IR of what tracers of torch have to do with a launch.

@unobserved   whether nobody would see more of a launch than that it is made
@written      counts changes of the tensors that a launch wrote
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

OBSERVING = f"""
; Whether a launch of %kernel is no business of a tracer: this thread does what is usual, and no dispatch mode and no
; transform is on; or it does something under which the tracer itself says so. Columns see to the classes of arguments.
define internal i1 @unobserved(ptr %shared, ptr %kernel) {{
entry:
  %argv = alloca ptr
  %local = call ptr @pointer(ptr %shared, i64 {t.SHARED_DOING})
  %modes.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_MODES})
  %blind = icmp eq ptr %modes.f, null
  br i1 %blind, label %no, label %look
look:
  %name = call ptr @pointer(ptr %shared, i64 {t.SHARED_DOING_NAME})
  %doing = call ptr @PyObject_GetAttr(ptr %local, ptr %name)
  %angry = icmp eq ptr %doing, null
  br i1 %angry, label %clear, label %compare
compare:
  call void @Py_DecRef(ptr %doing)        ; the thread holds it
  %usual.o = call ptr @pointer(ptr %shared, i64 {t.SHARED_USUAL})
  %usual = icmp eq ptr %doing, %usual.o
  br i1 %usual, label %modes, label %ask
modes:
  %n.modes = call i64 %modes.f()
  %no.modes = icmp eq i64 %n.modes, 0
  br i1 %no.modes, label %transforms, label %no
transforms:
  %included.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_INCLUDED})
  %key = call i64 @word(ptr %shared, i64 {t.SHARED_TRANSFORM})
  %key.16 = trunc i64 %key to i16
  %is.transform = call zeroext i1 %included.f(i16 zeroext %key.16)
  %no.transform = xor i1 %is.transform, true
  ret i1 %no.transform
ask:
  %judge = call ptr @pointer(ptr %shared, i64 {t.SHARED_JUDGE})
  store ptr %kernel, ptr %argv
  %said = call ptr @PyObject_Vectorcall(ptr %judge, ptr %argv, i64 1, ptr null)
  %unsaid = icmp eq ptr %said, null
  br i1 %unsaid, label %clear, label %heard
heard:
  call void @Py_DecRef(ptr %said)
  %true = call ptr @pointer(ptr %shared, i64 {t.SHARED_TRUE})
  %granted = icmp eq ptr %said, %true
  ret i1 %granted
clear:                                    ; the tracer itself says what is wrong
  call void @PyErr_Clear()
  br label %no
no:
  ret i1 false
}}

; Count the changes of the tensors that an entry's kernel writes.
define internal void @written(ptr %shared, ptr %entry.t, ptr %objects) {{
entry:
  %count = call i64 @word(ptr %entry.t, i64 {t.ENTRY_NWRITTEN})
  %columns = call ptr @pointer(ptr %entry.t, i64 {t.ENTRY_WRITTEN})
  %cdata = call i64 @word(ptr %shared, i64 {t.SHARED_CDATA})
  %version = call i64 @word(ptr %shared, i64 {t.SHARED_VERSION})
  %number = call i64 @word(ptr %shared, i64 {t.SHARED_COUNTER})
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.1, %one ], [ %i.1, %bump ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %done, label %one
one:
  %i.1 = add i64 %i, 1
  %column = call i64 @word(ptr %columns, i64 %i)
  %object = call ptr @pointer(ptr %objects, i64 %column)
  %handle = getelementptr i8, ptr %object, i64 %cdata
  %tensor = load ptr, ptr %handle
  %version.at = getelementptr i8, ptr %tensor, i64 %version
  %counter = load ptr, ptr %version.at
  %uncounted = icmp eq ptr %counter, null ; made in inference mode
  br i1 %uncounted, label %next, label %bump
bump:
  %number.at = getelementptr i8, ptr %counter, i64 %number
  %before = atomicrmw add ptr %number.at, i32 1 monotonic
  br label %next
done:
  ret void
}}
"""
