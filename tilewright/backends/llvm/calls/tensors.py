"""LLVM IR that knows tensors of torch.

@made         a new one, as a table says
@tensor       what one is: type, device, alignment, whether autograd records; its address
@is_laid_out  whether one has this shape and these strides
"""

from __future__ import annotations

from tilewright.backends.llvm.calls import tables as t

_MADE = f"""
; A new tensor of torch, as a table says; null where torch refuses.
define internal ptr @made(ptr %shared, ptr %asked) {{
entry:
  %handle.at = alloca ptr
  %rank = call i64 @word(ptr %asked, i64 {t.MADE_RANK})
  %sizes = call ptr @pointer(ptr %asked, i64 {t.MADE_SIZES})
  %strides = call ptr @pointer(ptr %asked, i64 {t.MADE_STRIDES})
  %type = call i64 @word(ptr %asked, i64 {t.MADE_TYPE})
  %type.32 = trunc i64 %type to i32
  %device = call i64 @word(ptr %asked, i64 {t.MADE_DEVICE})
  %device.32 = trunc i64 %device to i32
  %index = call i64 @word(ptr %asked, i64 {t.MADE_INDEX})
  %index.32 = trunc i64 %index to i32
  %empty.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_EMPTY})
  %code = call i32 %empty.f(i64 %rank, ptr %sizes, ptr %strides, i32 %type.32, i32 %device.32, i32 %index.32,
                            ptr %handle.at)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %none, label %filled
filled:
  %handle = load ptr, ptr %handle.at
  %zero = call i64 @word(ptr %asked, i64 {t.MADE_ZERO})
  %is.zero = icmp ne i64 %zero, 0
  br i1 %is.zero, label %fill, label %wrap
fill:
  %zero.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_ZERO})
  %unfilled = call i32 %zero.f(ptr %handle)
  br label %wrap
wrap:
  %bad = phi i32 [ 0, %filled ], [ %unfilled, %fill ]
  %wrap.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_WRAP})
  %object = call ptr %wrap.f(ptr %handle)
  %delete.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_DELETE})
  %gone = call i32 %delete.f(ptr %handle)
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %done, label %drop
done:
  ret ptr %object
drop:
  call void @Py_DecRef(ptr %object)
  br label %none
none:
  ret ptr null
}}
"""

_TENSOR = f"""
; Facts of a tensor of torch, 0 if it has no plain memory; its address goes to %out.
define internal i64 @tensor(ptr %shared, ptr %object, ptr %out) alwaysinline {{
entry:
  %described = alloca [8 x i64], align 16
  %kind.at = alloca i32
  %index.at = alloca i32
  %type.at = alloca i32
  %data = call ptr @pointer(ptr %shared, i64 {t.SHARED_DATA})
  %no.shim = icmp eq ptr %data, null
  br i1 %no.shim, label %exchange, label %shim
shim:
  %cdata = call i64 @word(ptr %shared, i64 {t.SHARED_CDATA})
  %handle = getelementptr i8, ptr %object, i64 %cdata
  %code.data = call i32 %data(ptr %handle, ptr %out)
  %dtype = call ptr @pointer(ptr %shared, i64 {t.SHARED_DTYPE})
  %code.type = call i32 %dtype(ptr %handle, ptr %type.at)
  %device = call ptr @pointer(ptr %shared, i64 {t.SHARED_DEVICE})
  %code.kind = call i32 %device(ptr %handle, ptr %kind.at)
  %code.a = or i32 %code.data, %code.type
  %code.b = or i32 %code.a, %code.kind
  %bad = icmp ne i32 %code.b, 0
  br i1 %bad, label %no, label %sign
sign:                                     ; of a view of negated numbers the way through Python speaks
  %keys.at = call i64 @word(ptr %shared, i64 {t.SHARED_KEYS})
  %negated = call i64 @word(ptr %shared, i64 {t.SHARED_NEGATED})
  %impl = load ptr, ptr %handle
  %keys.p = getelementptr i8, ptr %impl, i64 %keys.at
  %keys = load i64, ptr %keys.p
  %flipped = and i64 %keys, %negated
  %is.negated = icmp ne i64 %flipped, 0
  br i1 %is.negated, label %no, label %where
where:
  %kind = load i32, ptr %kind.at
  %type = load i32, ptr %type.at
  %requires.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_REQUIRES})
  %blind = icmp eq ptr %requires.f, null
  br i1 %blind, label %placed, label %gradient
gradient:
  %inner = load ptr, ptr %handle
  %requires = call zeroext i1 %requires.f(ptr %inner)
  br i1 %requires, label %mode, label %placed
mode:
  %records.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_RECORDS})
  %records = call zeroext i1 %records.f()
  %recorded = select i1 %records, i64 {t.FACT_GRADIENT}, i64 0
  br label %placed
placed:
  %flows = phi i64 [ 0, %where ], [ 0, %gradient ], [ %recorded, %mode ]
  %host = icmp eq i32 %kind, 0            ; the CPU has no number
  br i1 %host, label %read, label %numbered
numbered:
  %index.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_INDEX})
  %code.index = call i32 %index.f(ptr %handle, ptr %index.at)
  %index.n = load i32, ptr %index.at
  br label %read
exchange:
  %exchange.f = call ptr @pointer(ptr %shared, i64 {t.SHARED_EXCHANGE})
  %code = call i32 %exchange.f(ptr %object, ptr %described)
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %clear, label %taken
taken:
  %start = call i64 @word(ptr %described, i64 0)
  %offset = call i64 @word(ptr %described, i64 5)
  %address.x = add i64 %start, %offset
  %null.x = icmp eq i64 %start, 0
  %address.y = select i1 %null.x, i64 0, i64 %address.x
  store i64 %address.y, ptr %out
  %kind.p = getelementptr i8, ptr %described, i64 8
  %kind.x = load i32, ptr %kind.p
  %index.p = getelementptr i8, ptr %described, i64 12
  %index.x = load i32, ptr %index.p
  %type.p = getelementptr i8, ptr %described, i64 20
  %type.x = load i32, ptr %type.p
  br label %read
read:
  %kind.r = phi i32 [ %kind, %placed ], [ %kind, %numbered ], [ %kind.x, %taken ]
  %index.r = phi i32 [ 0, %placed ], [ %index.n, %numbered ], [ %index.x, %taken ]
  %type.r = phi i32 [ %type, %placed ], [ %type, %numbered ], [ %type.x, %taken ]
  %flows.r = phi i64 [ %flows, %placed ], [ %flows, %numbered ], [ 0, %taken ]
  %address = load i64, ptr %out
  %nowhere = icmp eq i64 %address, 0
  br i1 %nowhere, label %no, label %facts
facts:
  %aligned = call i64 @alignment(i64 %address)
  %type.64 = zext i32 %type.r to i64
  %kind.64 = zext i32 %kind.r to i64
  %index.64 = zext i32 %index.r to i64
  %kind.s = shl i64 %kind.64, {t.SHIFT_KIND}
  %index.s = shl i64 %index.64, {t.SHIFT_INDEX}
  %f.1 = or i64 %type.64, %aligned
  %f.2 = or i64 %f.1, %kind.s
  %f.3 = or i64 %f.2, %index.s
  %f.4 = or i64 %f.3, %flows.r
  ret i64 %f.4
clear:
  call void @PyErr_Clear()
  br label %no
no:
  ret i64 0
}}

define internal i64 @alignment(i64 %address) alwaysinline {{
  %low = and i64 %address, 15
  %aligned = icmp eq i64 %low, 0
  %bit = select i1 %aligned, i64 {t.FACT_ALIGNED}, i64 0
  ret i64 %bit
}}

define internal i64 @integer(i64 %n) alwaysinline {{
  %low.bits = and i64 %n, 15
  %by.16 = icmp eq i64 %low.bits, 0
  %bit.0 = select i1 %by.16, i64 {t.FACT_DIVISIBLE}, i64 0
  %one = icmp eq i64 %n, 1
  %bit.1 = select i1 %one, i64 {t.FACT_ONE}, i64 0
  %short = trunc i64 %n to i32
  %back = sext i32 %short to i64
  %wide = icmp ne i64 %back, %n
  %bit.2 = select i1 %wide, i64 {t.FACT_WIDE}, i64 0
  %small = icmp slt i64 %n, 1
  %bit.3 = select i1 %small, i64 {t.FACT_NOT_POSITIVE}, i64 0
  %steps = shl i64 %n, 4                  ; the low bits themselves tell what divides it
  %bits.4 = and i64 %steps, {t.FACTS_OF_STEPS}
  %f.1 = or i64 %bit.0, %bit.1
  %f.2 = or i64 %bit.2, %bit.3
  %f.3 = or i64 %f.1, %f.2
  %f.4 = or i64 %f.3, %bits.4
  ret i64 %f.4
}}
"""

_LAYOUT = f"""
; Whether a tensor of torch has the rank, the sizes and the strides in a table.
define internal i1 @is_laid_out(ptr %shared, ptr %object, i64 %table) alwaysinline {{
entry:
  %wanted = inttoptr i64 %table to ptr
  %cdata = call i64 @word(ptr %shared, i64 {t.SHARED_CDATA})
  %handle = getelementptr i8, ptr %object, i64 %cdata
  %tensor = load ptr, ptr %handle
  %layout = call i64 @word(ptr %shared, i64 {t.SHARED_LAYOUT})
  %fields = getelementptr i8, ptr %tensor, i64 %layout
  %rank = load i64, ptr %fields
  %rank.wanted = load i64, ptr %wanted
  %same.rank = icmp eq i64 %rank, %rank.wanted
  br i1 %same.rank, label %place, label %no
place:
  %inside = getelementptr i64, ptr %fields, i64 1
  %inside.steps = getelementptr i64, ptr %inside, i64 {t.INLINE_AXES}
  %near = icmp ule i64 %rank, {t.INLINE_AXES}
  br i1 %near, label %compare, label %away
away:
  %outside = load ptr, ptr %inside
  %outside.steps = getelementptr i64, ptr %outside, i64 %rank
  br label %compare
compare:
  %sizes = phi ptr [ %inside, %place ], [ %outside, %away ]
  %steps = phi ptr [ %inside.steps, %place ], [ %outside.steps, %away ]
  %sizes.wanted = getelementptr i64, ptr %wanted, i64 1
  %steps.wanted = getelementptr i64, ptr %sizes.wanted, i64 %rank
  br label %axis
axis:
  %i = phi i64 [ 0, %compare ], [ %i.1, %one ]
  %all = icmp eq i64 %i, %rank
  br i1 %all, label %yes, label %one
one:
  %i.1 = add i64 %i, 1
  %size = call i64 @word(ptr %sizes, i64 %i)
  %size.wanted = call i64 @word(ptr %sizes.wanted, i64 %i)
  %step = call i64 @word(ptr %steps, i64 %i)
  %step.wanted = call i64 @word(ptr %steps.wanted, i64 %i)
  %same.size = icmp eq i64 %size, %size.wanted
  %same.step = icmp eq i64 %step, %step.wanted
  %same = and i1 %same.size, %same.step
  br i1 %same, label %axis, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

TENSORS = _MADE + _TENSOR + _LAYOUT
