"""Builds the probes and the native benches into build/bench, each once per state of its source."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

TOP = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
INTO = TOP / "build" / "bench"


class CannotBuildError(Exception):
    """Something that is needed to build is missing, or the compiler refused; says what."""


def built(name: str, command: list[str], sources: list[Path]) -> Path:
    """Returns what `command` makes of the sources, with `-o FILE` appended; from before, if there.

    Raises:
        CannotBuildError: With what the compiler said.
    """
    stem, _, suffix = name.partition(".")
    state = hashlib.sha256("\0".join(command).encode())
    for source in sources:
        state.update(source.read_bytes())
    folder = INTO / f"{stem}-{state.hexdigest()[:16]}"
    made = folder / (f"{stem}.{suffix}" if suffix else stem)
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "partial"
    try:
        done = subprocess.run([*command, "-o", str(partial)], capture_output=True, text=True)
    except OSError as error:
        raise CannotBuildError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise CannotBuildError(f"{' '.join(command)}\n{done.stderr}")
    partial.rename(made)
    return made


def probe_program(name: str, *flags: str) -> Path:
    """A probe in C, of probes/<name>.c; for this machine, unless there are other flags."""
    source = HERE / "probes" / f"{name}.c"
    sources = [source, *sorted((HERE / "probes").glob("*.h"))]
    machine = flags or ("-march=native",)
    return built(name, ["gcc", "-O3", *machine, "-D_GNU_SOURCE", "-pthread", str(source)], sources)


@functools.cache
def probe_module(name: str) -> ModuleType:
    """An extension built with nanobind, of probes/<name>.cpp."""
    try:
        import nanobind
    except ImportError:
        raise CannotBuildError("nanobind is not installed") from None
    package = Path(nanobind.include_dir()).parent
    source = HERE / "probes" / f"{name}.cpp"
    command = ["g++", "-std=c++20", "-O3", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden"]
    command += ["-fno-strict-aliasing", f"-I{nanobind.include_dir()}"]
    command += [f"-I{package / 'ext' / 'robin_map' / 'include'}"]
    command += [f"-I{sysconfig.get_path('include')}", str(source)]
    command += [str(Path(nanobind.source_dir()) / "nb_combined.cpp")]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    path = built(f"{name}{suffix}", command, [source])
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CannotBuildError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def native_program(name: str) -> Path:
    """A bench in C++ over the adapter, of native/<name>.cpp, built with CMake and the adapter.

    It takes minutes where nothing is built yet, seconds after a change.
    """
    folder = INTO / "native"
    environment = {**os.environ, "PATH": os.pathsep.join(_paths())}
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=environment["PATH"]) else []
    steps = [
        ["cmake", "-S", str(HERE / "native"), "-B", str(folder), *generator],
        ["cmake", "--build", str(folder), "--target", name, "-j", str(os.cpu_count())],
    ]
    for command in steps:
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
        except OSError as error:
            raise CannotBuildError(f"{command[0]}: {error.strerror}") from None
        if done.returncode != 0:
            raise CannotBuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return folder / name


def _paths() -> list[str]:
    """Where tools are looked for: beside the interpreter, in a virtual environment, first."""
    return [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
