#!/usr/bin/env python3
"""Runs the steps of the image's last stage in a folder, for a machine without Docker's daemon, and then the program as the image would.

    sudo scripts/image_by_hand.py --binary target/release/riverrun --duckdb ~/.cache/riverrun/duckdb-VERSION/libduckdb.so

Wants root and debootstrap, which makes what stands for the stage's base. Each RUN is run by a shell in it, each COPY takes what it names from
the two arguments. Then the program is started as the image's user on a root that can't be written, with its volume and /tmp.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/interop"))

from dockerfile import stages  # noqa: E402


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def make_base(folder, base):
    """A Debian with as little as the slim image has."""
    release = re.fullmatch(r"debian:(\w+)-slim", base)
    if not release:
        sys.exit(f'error: the base "{base}" is not made by debootstrap\n\nhint: a Debian with -slim is wanted')
    say(f"{base}: debootstrap")
    subprocess.run(["debootstrap", "--variant=minbase", release.group(1), folder], check=True, stdout=subprocess.DEVNULL)


def carry_out(stage, folder, files):
    """The steps that change the file system, in their order."""
    for step in stage.steps:
        if step.name == "RUN":
            say(f"RUN {step.command()}")
            subprocess.run(["chroot", folder, "sh", "-c", step.command()], check=True, stdout=subprocess.DEVNULL)
        elif step.name == "COPY":
            source, target = step.words()
            target = folder / target.lstrip("/") / (pathlib.Path(source).name if target.endswith("/") else "")
            say(f"COPY {source} (here {files[pathlib.Path(source).name]})")
            shutil.copy(files[pathlib.Path(source).name], target)


# A root that can't be written, with what the image's text says can be: the volume and /tmp.
CLOSED = """
set -e
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t tmpfs -o "uid=$2,gid=$3,mode=0700" tmpfs "$1$4"
mount -t proc proc "$1/proc"
ip link set lo up
folder=$1 user=$2 group=$3
shift 4
exec chroot "$folder" setpriv --reuid "$user" --regid "$group" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def start(stage, folder, arguments):
    """The program as the image's user, with the image's variables; its output is ours."""
    user = stage.of("USER")[0].text
    # As a container gets it: the group of the user's own line.
    group = next(line.split(":")[3] for line in (folder / "etc/passwd").read_text().splitlines() if line.split(":")[2] == user)
    home = stage.of("WORKDIR")[0].text
    variables = stage.of("ENV")[0].words()
    return subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "sh", "-c", CLOSED, "sh", folder, user, group, home,
                           "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", *variables, "riverrun", *arguments], check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--duckdb", required=True, type=pathlib.Path, help="libduckdb.so")
    parser.add_argument("arguments", nargs="*", help="of the program; --version and diagnose without any")
    given = parser.parse_args()
    stage = stages((ROOT / "deploy/Dockerfile").read_text())[-1]
    with tempfile.TemporaryDirectory(prefix="riverrun-image-") as name:
        folder = pathlib.Path(name) / "root"
        make_base(folder, stage.base)
        carry_out(stage, folder, {"riverrun": given.binary, "libduckdb.so": given.duckdb})
        for arguments in [given.arguments] if given.arguments else [["--version"], ["diagnose"]]:
            say(f"riverrun {' '.join(arguments)}")
            code = start(stage, folder, arguments)
            # An image has no models, which `diagnose` says with 3.
            if code and (arguments, code) != (["diagnose"], 3):
                sys.exit(f'error: "riverrun {" ".join(arguments)}" ended with {code} in the image\n\nhint: what it says is above')


if __name__ == "__main__":
    main()
