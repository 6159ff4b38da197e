"""Modules that together use every section and relocation of our code: `i64 @k(ptr in, ptr out)`, both of 64 doubles."""

from __future__ import annotations

from tilewright.backends.llvm import features

ARM = features.describe("aarch64-unknown-linux-gnu", "neoverse-n1")
INTEL = features.describe("x86_64-unknown-linux-gnu", "x86-64-v3")

VECTOR_CONSTANTS = """
define i64 @k(ptr %in, ptr %out) {
  %a = load <16 x float>, ptr %in, align 4
  %b = fmul <16 x float> %a, <float 1.5, float 2.5, float -3.0, float 4.25, float 5.0, float 6.0, float 7.0, float 8.0,
    float 9.0, float 10.0, float 11.0, float 12.0, float 13.0, float 14.0, float 15.0, float 16.0>
  %c = shufflevector <16 x float> %b, <16 x float> %a, <16 x i32> <i32 3, i32 17, i32 0, i32 9, i32 30, i32 1, i32 2,
    i32 5, i32 8, i32 31, i32 12, i32 20, i32 4, i32 7, i32 6, i32 11>
  %d = fadd <16 x float> %c, splat (float 3.140625)
  store <16 x float> %d, ptr %out, align 4
  ret i64 17179869187
}"""
_ARMS = 14
JUMP_TABLE = (
    """
define i64 @k(ptr %in, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %join ]
  %s = phi double [ 0.5, %entry ], [ %r, %join ]
  %what = urem i64 %i, 19
  switch i64 %what, label %other [ """
    + " ".join(f"i64 {n}, label %arm{n}" for n in range(_ARMS))
    + " ]\n"
    + "".join(
        f"arm{n}:\n  %p{n} = getelementptr double, ptr %in, i64 {3 * n}\n  %x{n} = load volatile double, ptr %p{n}\n"
        f"  %y{n} = {'fadd' if n % 3 else 'fmul'} double %s, %x{n}\n  br label %join\n"
        for n in range(_ARMS)
    )
    + "other:\n  %y = fneg double %s\n  br label %join\njoin:\n  %r = phi double [ %y, %other ], "
    + ", ".join(f"[ %y{n}, %arm{n} ]" for n in range(_ARMS))
    + """
  %q = getelementptr double, ptr %out, i64 %i
  store double %r, ptr %q
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 64
  br i1 %more, label %loop, label %done
done:
  ret i64 %i
}"""
)
CALLS = """
declare float @sinf(float)
declare double @pow(double, double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal i64 @double(i64 %n) noinline { %r = shl i64 %n, 1 ret i64 %r }
define internal i64 @cold(i64 %n) noinline section ".text.cold" {
  %a = call i64 @double(i64 %n)
  %b = add i64 %a, 1
  ret i64 %b
}
define i64 @k(ptr %in, ptr %out) {
  %half = call i64 @double(i64 128)
  %away = getelementptr i8, ptr %out, i64 64
  call void @llvm.memcpy.p0.p0.i64(ptr %away, ptr %in, i64 %half, i1 false)
  %x = load double, ptr %in
  %f = fptrunc double %x to float
  %s = call float @sinf(float %f)
  %p = call double @pow(double %x, double 1.25)
  store float %s, ptr %out
  %q = getelementptr double, ptr %out, i64 1
  store double %p, ptr %q
  %r = call i64 @cold(i64 20)
  ret i64 %r
}"""
GLOBALS = """
@count = internal global i64 5
@space = internal global [512 x i64] zeroinitializer, align 64
@visible = global i64 1000
@table = internal constant [3 x i32] [i32 7, i32 11, i32 13]
@code = internal constant [2 x ptr] [ptr @one, ptr @two]
@pair = internal global { ptr, i64 } { ptr getelementptr (i8, ptr @space, i64 8), i64 3 }
define internal i64 @one(i64 %n) noinline { %r = add i64 %n, 100 ret i64 %r }
define internal i64 @two(i64 %n) noinline { %r = mul i64 %n, 3 ret i64 %r }
define i64 @k(ptr %in, ptr %out) {
  %c = load volatile i64, ptr @count
  %c1 = add i64 %c, 1
  store volatile i64 %c1, ptr @count
  %v = load volatile i64, ptr @visible
  %v1 = add i64 %v, %c1
  store volatile i64 %v1, ptr @visible
  %w = load volatile ptr, ptr @pair
  store i64 %v1, ptr %w
  %i = and i64 %c, 1
  %f.p = getelementptr ptr, ptr @code, i64 %i
  %f = load ptr, ptr %f.p
  %r = call i64 %f(i64 %v1)
  %t.i = urem i64 %c, 3
  %t.p = getelementptr i32, ptr @table, i64 %t.i
  %t = load i32, ptr %t.p
  %t64 = zext i32 %t to i64
  %s.p = getelementptr i64, ptr @space, i64 1
  %s = load volatile i64, ptr %s.p
  %far.p = getelementptr i64, ptr @space, i64 511
  %far = load volatile i64, ptr %far.p
  store i64 %t64, ptr %out
  %o1 = getelementptr i64, ptr %out, i64 1
  store i64 %s, ptr %o1
  %o2 = getelementptr i64, ptr %out, i64 2
  store i64 %far, ptr %o2
  ret i64 %r
}"""
# Some 100 KB of code with a constant at every step, then a call back to the start of it.
LARGE = (
    "define internal double @first(double %x) noinline { %r = fadd double %x, 0x3FF8CCCCCCCCCCCD ret double %r }\n"
    "define i64 @k(ptr %in, ptr %out) {\n  %x0 = load double, ptr %in\n"
    + "".join(
        f"  %m{n} = fmul double %x{n}, {1 + n / 1024}\n  %v{n} = load volatile double, ptr %in\n"
        f"  %x{n + 1} = fsub double %v{n}, %m{n}\n"
        for n in range(5000)
    )
    + "  %z = call double @first(double %x5000)\n  store double %z, ptr %out\n  ret i64 1\n}"
)
CASES = {"vectors": VECTOR_CONSTANTS, "jumps": JUMP_TABLE, "calls": CALLS, "globals": GLOBALS, "large": LARGE}

EXTERNAL = """
declare i64 @far(i64)
define i64 @k(ptr %in, ptr %out) {
  %a = call i64 @far(i64 30)
  %b = call i64 @far(i64 %a)
  store ptr @far, ptr %out
  %c = add i64 %b, 1
  ret i64 %c
}"""
