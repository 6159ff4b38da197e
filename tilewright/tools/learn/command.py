"""The commands of `tilewright learn`."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from tilewright.tools.learn.catalogue import EXERCISES, Exercise, found
from tilewright.tools.learn.check import Verdict
from tilewright.tools.learn.course import Course, solved

_folder = click.option(
    "--dir", "-d", "folder", default=".", show_default="here", type=click.Path(file_okay=False, path_type=Path),
    help="Where the exercises are.",
)  # fmt: skip


@click.group()
def learn() -> None:
    """Learn to write kernels: twelve exercises with checks, from one tile to flash attention.

    \b
    tilewright learn start exercises    writes the files
    cd exercises; tilewright learn watch
    """


@learn.command()
@click.argument("folder", default="exercises", type=click.Path(file_okay=False, path_type=Path))
def start(folder: Path) -> None:
    """Write the exercises to FOLDER; files that are there stay as they are."""
    written = Course(folder).start()
    click.echo(f"{folder}: {len(written)} exercises written" + ("" if written else "; all were there"))
    first = found("1").file
    click.echo(
        f"Begin with {folder / first}: read it, write what is missing, then\n"
        f"  cd {folder}\n"
        "  tilewright learn check      checks the first that is not done\n"
        "  tilewright learn watch      does so whenever you save a file\n"
        "  tilewright learn hint 1     says more, step by step; show 1 prints the solution"
    )


@learn.command("list")
@_folder
def list_command(folder: Path) -> None:
    """List the exercises, and what is done."""
    course = Course(folder)
    here = course.next()
    for exercise in EXERCISES:
        mark = "done" if exercise.name in course.passed else "next" if exercise is here else ""
        click.echo(f"{mark:4}  {exercise.file:26} {exercise.title}")


@learn.command()
@click.argument("which", default="")
@click.option("--all", "everything", is_flag=True, help="Check every exercise again.")
@click.option("--interpret", is_flag=True, help="Run it as Python: print and breakpoint() work in the kernel.")
@_folder
def check(which: str, everything: bool, interpret: bool, folder: Path) -> None:
    """Check exercise WHICH, a number or a name; without it, from the first that is not done up to one that is wrong.

    Exit status 1 if one is wrong.
    """
    course = Course.opened(folder)
    if everything:
        verdicts = [course.check(exercise, interpret) for exercise in EXERCISES]
    elif which:
        verdicts = [course.check(found(which), interpret)]
    elif interpret:
        verdicts = [course.check(course.next() or EXERCISES[-1], interpret)]
    else:
        verdicts = list(course.checked_on())
    for verdict in verdicts:
        _tell(verdict)
    _tell_next(course)
    if not all(verdict.passed for verdict in verdicts):
        raise SystemExit(1)


@learn.command()
@click.option("--seconds", default=0.3, help="Between two looks at the files.", hidden=True)
@click.option("--rounds", default=0, help="End after so many checks.", hidden=True)
@_folder
def watch(seconds: float, rounds: int, folder: Path) -> None:
    """Check the first exercise that is not done, and do so again whenever a file is saved. Ctrl-C ends it."""
    course, done = Course.opened(folder), 0
    while True:
        seen = course.changed()
        click.clear()
        for verdict in course.checked_on():
            _tell(verdict)
        _tell_next(course)
        done += 1
        if course.next() is None or done == rounds:
            return
        click.echo(f"\nwaiting for {course.folder / _current(course).file}; Ctrl-C ends it")
        while course.changed() == seen:
            time.sleep(seconds)


@learn.command()
@click.argument("which", default="")
@_folder
def hint(which: str, folder: Path) -> None:
    """Say how exercise WHICH goes on; each time one step more."""
    course = Course.opened(folder)
    exercise = found(which) if which else _current(course)
    told, left = course.hint(exercise)
    for number, text in enumerate(told, 1):
        click.echo(f"{number}. {text}")
    solution = f"that is all; tilewright learn show {exercise.number} has the solution"
    click.echo(f"{left} more: ask again" if left else solution)


@learn.command()
@click.argument("which")
def show(which: str) -> None:
    """Print the solution of exercise WHICH."""
    click.echo(solved(found(which)), nl=False)


@learn.command()
@click.argument("which")
@_folder
def reset(which: str, folder: Path) -> None:
    """Write exercise WHICH anew; what was in its file is kept beside it."""
    course, exercise = Course.opened(folder), found(which)
    kept = course.reset(exercise)
    click.echo(f"{course.path(exercise)} is as it came" + (f"; yours is {kept}" if kept else ""))


def _current(course: Course) -> Exercise:
    return course.next() or EXERCISES[-1]


def _tell(verdict: Verdict) -> None:
    console = Console(highlight=False, soft_wrap=True)
    state = "[bold green]right[/]" if verdict.passed else "[bold red]not yet[/]"
    text = escape(verdict.text)
    console.print(f"{verdict.exercise.file}: {state}" + (f", {text.removeprefix('right ')}" if verdict.passed else ""))
    if not verdict.passed:
        console.print("\n".join(f"  {line}".rstrip() for line in text.splitlines()))
        number = verdict.exercise.number
        console.print(f"  more: tilewright learn hint {number}", style="dim")
        looking = f"tilewright learn check {number} --interpret, with print or breakpoint() in the kernel"
        console.print(f"  look at values: {looking}", style="dim")


def _tell_next(course: Course) -> None:
    following = course.next()
    count = f"{len(course.passed)} of {len(EXERCISES)} done"
    click.echo(f"{count}; next: {following.file}, {following.title}" if following else f"{count}: that is all of them")
