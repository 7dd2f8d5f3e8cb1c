"""Libraries that stand in front of the system's (LD_PRELOAD), and do to a program what a test says."""

import shutil
import subprocess

import pytest


def built(source, folder):
    """Builds one; whoever builds riverrun has a compiler of C, since Rust links by it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler of C here")
    library = folder / source.with_suffix(".so").name
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
