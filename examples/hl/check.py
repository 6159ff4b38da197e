"""What every example ends with: its result beside PyTorch's, and the time of both.

`compare` prints one line and fails where the largest error is above the tolerance. Times are the best of a few calls,
after one that compiles; they show what to expect, and are no benchmark.
"""

import time

import torch


def best(function, *args, repeat: int = 5) -> float:
    """The shortest of `repeat` calls, in milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function(*args)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def compare(name: str, kernel, reference, *args, tolerance: float = 1e-5) -> None:
    """Check `kernel(*args)` against `reference(*args)`, and print the largest error and both times."""
    ours, theirs = kernel(*args), reference(*args)
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    error = max((left.double() - right.double()).abs().max().item() for left, right in pairs)
    times = best(kernel, *args), best(reference, *args)
    print(f"{name:<24} max error {error:.1e}  hl {times[0]:8.3f} ms  torch {times[1]:8.3f} ms")
    assert error <= tolerance, f"{name} differs from PyTorch"
    assert isinstance(ours, tuple | torch.Tensor)
