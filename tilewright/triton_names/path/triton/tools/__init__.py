"""`triton.tools`: what Tilewright has of it lies below; what it has not says what to use instead."""

from tilewright.base.refusal import Refusal
from tilewright.layouts.linear_face import LinearLayout as LinearLayout

_OBJECTS = "`tilewright compile` writes objects, a C header and a launch function for several variants"
compile = Refusal("tools.compile", _OBJECTS)
link = Refusal("tools.link", _OBJECTS)
build_extern = Refusal("tools.build_extern", "functions of libdevice are there; other libraries by `extern_libs`")
triton_to_gluon_translator = Refusal("tools.triton_to_gluon_translator", "there is no Gluon")
