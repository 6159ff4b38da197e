"""Random control flow: loops that carry tiles, scalars and pointers, branches, and all of these inside one another."""

from __future__ import annotations

from tests.fuzz.arithmetic import joined
from tests.fuzz.generator import Generator, family
from tests.fuzz.memory import choose_fill, fill_facts, positions
from tests.fuzz.values import FLOATS, INTS, TYPES, Unsuitable, Value, facts


def change_some(g: Generator, count: int) -> None:
    """Assign integers that are visible outside of this block anew."""
    for _ in range(count):
        g.attempt(lambda: _change(g))


def _change(g: Generator) -> None:
    old = g.find(lambda v: (v.is_int or v.dtype == "int1") and not v.frozen and v.name.startswith("v"))
    new = g.find(lambda v: v.dtype == old.dtype and v.shape == old.shape)
    texts = [f"{old.name} = {new.name}"]
    if old.is_int:
        texts += [
            f"{old.name} += {new.name}",
            f"{old.name} = {new.name} - {old.name}",
            f"{old.name} ^= {new.name}",
            f"{old.name} += 1",
        ]
    else:
        texts += [f"{old.name} = {old.name} ^ {new.name}"]
    g.add(g.random.choice(texts))


def _counter(g: Generator) -> tuple[str, int, bool]:
    """The header of a counted loop, the number of turns, and whether it is unrolled."""
    turns = g.random.choice((0, 1, 2, 3, 4))
    name = g.fresh("k")
    kind = g.random.choice(("count", "count", "bounds", "step", "either", "down", "static"))
    if kind == "either":
        start, step = g.random.randint(-5, 20), g.random.choice((-16, -3, -2, -1, 2, 3, 16))
        end = start + turns * step - (turns > 0) * g.random.randrange(abs(step)) * (1 if step > 0 else -1)
        if turns == 0 and g.chance(0.5):
            end -= step
        return f"for {name} in range({g.number(start)}, {g.number(end)}, {_of_any_sign(g, step)}):", turns, False
    if kind == "count":
        return f"for {name} in range({g.number(turns)}):", turns, False
    if kind == "bounds":
        start = g.random.randint(-2, 5)
        return f"for {name} in range({g.number(start)}, {g.number(start + turns)}):", turns, False
    if kind == "step":
        step = g.random.choice((2, 3, 16))
        return (
            f"for {name} in range(0, {g.number(turns * step - (1 if turns else 0))}, {g.number(step)}):",
            turns,
            False,
        )
    if kind == "down":
        return f"for {name} in range({g.number(turns)}, 0, -1):", turns, False
    return f"for {name} in tl.static_range({turns}):", turns, True


def _of_any_sign(g: Generator, step: int) -> str:
    """A step of which only a run tells the sign; a number that a launch may make a constant would not be one."""
    name = g.scalar(step)
    return g.random.choice((name, name, f"({name} + pid0 - pid0)", f"tl.minimum({name}, {abs(step)})"))


@family(2.2)
def loop(g: Generator) -> None:
    if g.depth >= g.profile.depth:
        raise Unsuitable
    header, turns, unrolled = _counter(g)
    name = header.split()[1]
    sums = [s for s in (g.attempt(lambda: _accumulator(g, turns)) for _ in range(g.random.randint(0, 2))) if s]
    pointer = _moving_pointer(g, turns) if g.chance(0.5) else None
    statement = g.add(header)
    with g.block(statement.body, loop=True):
        if not unrolled:  # there the counter is a constant of Python
            g.scopes[-1].append(Value(name, (), "int32", frozen=True))
        if pointer is not None:
            pointer.load(g)
        g.fill(g.random.randint(1, 4))
        change_some(g, g.random.randint(0, 2))
        for total, scale in sums:
            g.attempt(lambda total=total, scale=scale: _accumulate(g, total, scale, turns))
        if pointer is not None:
            g.add(f"{pointer.name} += {pointer.step}")
    for total, _ in sums:
        known = [v for v in g.visible() if v.name == total.name]
        g.replace_value(total, known[0].like(frozen=False))


def _accumulator(g: Generator, turns: int) -> tuple[Value, float]:
    """A float tile that starts at zero; nobody reads it before the loop is over."""
    like = g.tile(lambda v: v.dtype in ("float32", "float64"))
    name = g.fresh("s")
    g.add(f"{name} = tl.zeros_like({like.name})")
    total = Value(name, like.shape, like.dtype, mag=1e-30, grain=1.0, frozen=True)
    return total, g.random.choice((1.0, 1.0, 0.5))


def _accumulate(g: Generator, total: Value, scale: float, turns: int) -> None:
    value = g.tile(lambda v: v.dtype == total.dtype and v.shape == total.shape and v.name != total.name)
    grain = value.grain * (scale**turns) if value.grain else None
    inexact = g.fused or grain is None
    mag = max(turns, 1) * value.mag
    known = facts(total.dtype, mag, grain, turns * value.err, special=value.special, inexact=inexact)
    sign = g.random.choice("+-")
    text = (
        f"{total.name} {sign}= {value.name}"
        if scale == 1.0
        else f"{total.name} = {total.name} * {scale} {sign} {value.name}"
    )
    g.add(text)
    final = Value(total.name, total.shape, total.dtype, frozen=True, **known)  # type: ignore[arg-type]
    g.scopes[-2].append(final)


class _Pointer:
    """A tile of pointers that moves on in every turn."""

    def __init__(self, name: str, step: int, value: Value, mask: str) -> None:
        self.name, self.step, self.value, self.mask = name, step, value, mask

    def load(self, g: Generator) -> None:
        tail = f", mask={self.mask}, other=0" if self.mask else ""
        v = self.value
        known = {"mag": v.mag, "grain": v.grain, "special": v.special} if v.is_float else {}
        g.define(f"tl.load({self.name}{tail})", v.shape, v.dtype, **known)


def _moving_pointer(g: Generator, turns: int) -> _Pointer:
    shape = g.shape(g.random.choice((1, 2)))
    dtype = g.random.choice((*INTS, *FLOATS))
    count = 1
    for extent in shape:
        count *= extent
    step = g.random.choice((1, count, 16, 0))
    array = g.array(dtype, choose_fill(g, dtype), count + step * max(0, turns - 1))
    strides, width = [], 1
    for extent in reversed(shape):
        strides.insert(0, width)
        width *= extent
    index = " + ".join(f"{positions(g, shape, i)} * {s}" for i, s in enumerate(strides))
    name = g.fresh("q")
    g.add(f"{name} = {array} + {index}")
    value = Value("", shape, dtype, **fill_facts(dtype, g.params[array].fill))
    mask = f"({positions(g, shape, 0)} < {g.number(g.random.randint(0, shape[0]))})" if g.chance(0.4) else ""
    if mask and len(shape) > 1:
        mask += f" & ({positions(g, shape, 1)} >= 0)"
    return _Pointer(name, step, value, mask)


@family(1)
def while_loop(g: Generator) -> None:
    if g.depth >= g.profile.depth:
        raise Unsuitable
    name = g.fresh("c")
    limit = g.scalar(g.random.choice((0, 2, 3, 4)))
    g.add(f"{name} = {g.random.choice(('0', g.program + ' * 0', limit + ' - ' + limit))}")
    step = g.random.choice((1, 1, 2))
    statement = g.add(f"while {name} < {limit}:")
    with g.block(statement.body, loop=True):
        g.scopes[-1].append(Value(name, (), "int32", frozen=True))
        place = g.random.choice(("head", "end", "", ""))
        if place == "head":
            _break(g, name)
        g.fill(g.random.randint(1, 3))
        change_some(g, g.random.randint(1, 2))
        if place == "end":
            _break(g, name)
        g.add(f"{name} += {step}")


def _break(g: Generator, counter: str) -> None:
    """Leave the loop beyond some number, in one of many spellings."""
    limit, least = g.scalar(g.random.choice((0, 1, 2, 3))), g.random.randint(0, 3)
    spellings = (
        f"{counter} >= {limit}", f"not ({counter} < {limit})", f"{limit} - {counter} < 1", f"2 * {counter} > {least}",
        f"({counter} > {limit}) | ({counter} >= {least})", f"{counter} == {least}",
    )  # fmt: skip
    statement = g.add(f"if {g.random.choice(spellings)}:")
    with g.block(statement.body):
        g.add("break")


def _condition(g: Generator) -> str:
    choices = [
        f"{g.program} == {g.random.randrange(3)}",
        f"{g.program} % 2 == 0",
        f"{g.scalar(3)} > {g.random.randint(2, 4)}",
    ]
    for _ in range(3):
        value = g.attempt(lambda: g.find(lambda v: not v.shape and v.exact))
        if value is not None:
            choices.append(value.name if value.dtype == "int1" else f"{value.name} > {g.random.randint(0, 4)}")
    return g.random.choice(choices)


@family(1.8)
def branch(g: Generator) -> None:
    if g.depth >= g.profile.depth:
        raise Unsuitable
    targets = []
    for _ in range(g.random.randint(0, 2)):
        target = g.attempt(lambda: g.define_copy(g.find(lambda v: v.dtype in TYPES)))
        if target is not None:
            targets.append(target)
    statement = g.add(f"if {_condition(g)}:")
    known: dict[str, list[Value]] = {t.name: [t] for t in targets}
    sides = [statement.body] + ([statement.orelse] if g.chance(0.6) else [])
    for body in sides:
        with g.block(body):
            g.fill(g.random.randint(1, 3))
            change_some(g, g.random.randint(0, 2))
            assigned: dict[str, Value] = {}
            for target in targets:
                source = g.attempt(
                    lambda target=target: g.find(
                        lambda v: v.dtype == target.dtype and v.shape == target.shape and v.name != target.name
                    )
                )
                if source is not None:
                    g.add(f"{target.name} = {source.name}")
                    assigned[target.name] = assigned.get(source.name, source)  # it may be a target assigned just before
                    known[target.name].append(assigned[target.name])
    for target in targets:
        g.replace_value(target, target.like(**joined(*known[target.name])))
