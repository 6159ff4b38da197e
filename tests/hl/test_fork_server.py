"""Workers that are forked off a server, as those that measure on a GPU are; here they use the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tilewright import hl, testing
from tilewright.hl.tune import program
from tilewright.hl.tune.outcomes import Compiled, Failed, Job, Plan, Timed
from tilewright.hl.tune.workers import Pool

pytestmark = pytest.mark.skipif(not testing.can_fork(), reason="workers are forked off")
X = torch.ones(8)


class Does:
    """What stands for a candidate: code that runs ahead of the result."""

    def __init__(self, code="pass"):
        self.code = code

    def __call__(self, x):
        exec(self.code, found := {})
        return torch.as_tensor(float(found.get("result", 0.0))) + x


class Sent:
    """As `program.Portable`, for candidates that are themselves functions."""

    def subject(self, device):
        from tilewright.hl.tune.bench import Subject

        return Subject((X,), lambda what: what, lambda what: ())


def outcomes(pool, *codes, limit=20.0):
    pool.submit(Job([(at, Does(code)) for at, code in enumerate(codes)], Plan(check=False, rep=1.0, warmup=1.0), limit))
    return dict(pool.outcomes(time.monotonic() + 60))


@pytest.fixture
def pool():
    made = Pool([], [program.fresh(Sent(), None)])
    yield made
    made.close()


def test_of_one_that_dies_the_candidate_is_lost_alone_and_the_next_worker_is_of_the_same_server(pool, tmp_path):
    note = f"import os; open({str(tmp_path / 'seen')!r}, 'a').write(f'{{os.getppid()}} {{os.getpid()}}\\n')"
    said = outcomes(pool, note, "import os; os.kill(os.getpid(), 9)", note, "import os; os._exit(3)", note)
    assert [type(said[at]) for at in range(5)] == [Timed, Failed, Timed, Failed, Timed]
    assert said[1].kind == "crash" and "signal 9" in said[1].why and "status 3" in said[3].why
    servers, workers = zip(*(line.split() for line in (tmp_path / "seen").read_text().splitlines()))
    assert len(set(servers)) == 1 and len(set(workers)) == 3 and str(os.getpid()) not in servers


def test_one_that_hangs_is_ended(pool):
    begin = time.monotonic()
    said = outcomes(pool, "pass", "import time; time.sleep(100)", limit=1.0)
    assert isinstance(said[0], Timed) and said[1].kind == "timeout" and time.monotonic() - begin < 50


def test_workers_have_what_is_set_when_they_begin(tmp_path, monkeypatch, capfd):
    for at in range(2):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "found_here.py").write_text(f"value = {at}")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SET_MEANWHILE", str(at))
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        pool = Pool([], [program.fresh(Sent(), None)])
        code = f"import os, found_here; assert os.environ['SET_MEANWHILE'] == '{at}' and found_here.value == {at}"
        said = outcomes(pool, f"{code} and os.getcwd() == {str(folder)!r}; print('printed', flush=True)")
        pool.close()
        assert isinstance(said[0], Timed) and "printed" in capfd.readouterr().out


def test_a_server_that_was_ended_is_started_anew(pool, tmp_path):
    note = f"import os; open({str(tmp_path / 'server')!r}, 'w').write(str(os.getppid()))"
    outcomes(pool, note)
    first = (tmp_path / "server").read_text()
    os.kill(int(first), signal.SIGKILL)
    pool.close()
    said = outcomes(pool, note)
    assert isinstance(said[0], Timed) and (tmp_path / "server").read_text() != first


def test_server_and_workers_end_with_the_process_that_asks(tmp_path):
    """Also where that is killed, while a worker hangs."""
    code = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_fork_server as t
pool = t.Pool([], [t.program.fresh(t.Sent(), None)])
hang = "import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(100)"
threading.Thread(target=lambda: t.outcomes(pool, hang), daemon=True).start()
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        numbers = [int(number) for number in process.stdout.readline().split()]
        process.stdin.write("\n")
        process.stdin.close()
    deadline = time.monotonic() + 20
    while (left := [number for number in numbers if lives(number)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(numbers) == 2 and not left


def lives(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"  # nobody has waited for it
    except OSError:
        return False


def test_a_real_kernel_is_compiled_checked_and_timed_there():
    def doubled(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = 2 * x[tile]
        return out

    x = torch.randn(1000)
    bound = hl.kernel(doubled).bind((x,))
    sent = program.portable((x,), lambda x: 2 * x)
    pool = Pool([program.fresh(sent, None)], [program.fresh(sent, None)])
    what = program.program_of(bound, bound.config_spec.default_config())
    for plan in (None, Plan(rep=1.0)):
        pool.submit(Job([(0, what)], plan, 60.0))
        (outcome,) = (outcome for _, outcome in pool.outcomes(time.monotonic() + 60))
        assert isinstance(outcome, Compiled if plan is None else Timed)
    pool.close()
