"""A small kernel as LLVM IR, for the tests of the tools."""

ADD = """
define ptx_kernel void @add(ptr %p, float %x, i32 %n) "nvvm.reqntid"="128" {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %in = icmp slt i32 %t, %n
  br i1 %in, label %then, label %done
then:
  %q = getelementptr float, ptr %p, i32 %t
  %v = load float, ptr %q
  %w = fadd float %v, %x
  store float %w, ptr %q
  br label %done
done:
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""
