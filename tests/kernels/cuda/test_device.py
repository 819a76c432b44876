"""Looking for a device: each thing that can be missing is named, with what to type."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.errors import EngineError
from penstock.kernels.cuda.device import choose_device

ASK = """
from penstock.errors import EngineError
from penstock.kernels.cuda.device import choose_device, explain_missing
assert explain_missing() is not None
assert choose_device("auto") == "cpu"
try:
    choose_device("cuda")
except EngineError as told:
    print(told)
"""
NOT_INSTALLED = "import sys; sys.modules['numba_cuda'] = None\n"
NO_RUNTIME = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "numba.cuda":
            raise RuntimeError("no file libcudart.so.13\\nlooked in: /usr/lib")
sys.meta_path.insert(0, Absent())
"""
LOOKED = "looked for numba-cuda, the CUDA runtime, an NVIDIA driver and a device: "


def ask_for_cuda(before: str) -> str:
    """What asking for cuda says in a process of its own, without any device in sight."""
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", before + ASK],
        env=env | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_without_numba_cuda_the_error_names_the_package_and_the_pip_line() -> None:
    assert ask_for_cuda(NOT_INSTALLED).splitlines() == [
        'device="cuda" was asked for, and there is no CUDA device here',
        f"  detail: {LOOKED}the package numba-cuda is not installed",
        '  hint:   pip install "penstock[gpu]", on a machine with an NVIDIA driver; or say device="auto"',
    ]


@pytest.mark.slow
def test_without_the_cuda_runtime_the_error_says_what_could_not_be_loaded() -> None:
    pytest.importorskip("numba_cuda", reason='needs the extra gpu: pip install "penstock[gpu]"')
    missing = "numba-cuda is installed, but the CUDA runtime could not be loaded: no file libcudart.so.13"
    assert f"  detail: {LOOKED}{missing}\n" in ask_for_cuda(NO_RUNTIME)


@pytest.mark.slow
def test_without_a_device_the_error_says_so() -> None:
    pytest.importorskip("numba_cuda", reason='needs the extra gpu: pip install "penstock[gpu]"')
    assert f"  detail: {LOOKED}numba-cuda found no usable device: " in ask_for_cuda("")


def test_the_cpu_is_always_there() -> None:
    assert choose_device("cpu") == "cpu"


def test_an_unknown_device_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(EngineError) as failure:
        choose_device("cudo")
    assert failure.value.fact == "there is no device 'cudo'"
    assert (failure.value.detail or "").startswith("devices: cuda, ")
    assert failure.value.hint == 'say device="cuda"'
