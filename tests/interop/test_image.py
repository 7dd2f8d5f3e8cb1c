"""The image's recipe against the checkout, against `x` and against the binary. No image is built: scripts/image_by_hand.py runs its last stage."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys

import pytest

from dockerfile import stages
from server import BINARY, ROOT

STAGES = stages((ROOT / "deploy/Dockerfile").read_text())
WEB, BUILD, IMAGE = STAGES
X = (ROOT / "x").read_text()
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def is_ignored(path):
    """Whether .dockerignore keeps a path of the checkout, or a folder above it, out of the build."""
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    for pattern in IGNORED:
        # fnmatch's star crosses slashes, Docker's does not: only patterns without a folder are asked by it.
        for one in above:
            if one == pattern or (pattern.startswith("**/") and fnmatch.fnmatchcase(one.rsplit("/", 1)[-1], pattern[3:])):
                return True
            if "/" not in pattern and "/" not in one and fnmatch.fnmatchcase(one, pattern):
                return True
    return False


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the checkout is no git repository")
    return [name for name in listed.stdout.split("\0") if name]


# Versions of Debian's packages go with its security; a `cd` lasts as long as its command.
ACCEPTED = ("DL3008", "DL3003")


def test_given_the_recipe_when_a_linter_reads_it_then_it_has_nothing_to_say():
    linter = shutil.which("hadolint", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
    if not linter:
        pytest.skip("hadolint is not there: tests/interop/requirements.txt has it for x86_64")
    ignored = [word for rule in ACCEPTED for word in ("--ignore", rule)]
    done = subprocess.run([linter, "--no-color", *ignored, ROOT / "deploy/Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def test_given_the_stages_when_they_copy_then_each_source_is_in_the_checkout_or_made_before():
    made = {"": set()}
    for stage in STAGES:
        workdir, made_here = "/", set()
        for step in stage.steps:
            if step.name == "WORKDIR":
                workdir = step.text
            elif step.name == "COPY":
                *sources, _ = step.words()
                other = step.flags().get("from")
                for source in sources:
                    if other:
                        assert any(place == source or place.startswith(f"{source}/") or source.startswith(f"{place}/") for place in made[other]), (stage.name, source, made[other])
                    else:
                        assert (ROOT / source).exists() and not is_ignored(source.rstrip("/")), (stage.name, source)
            elif step.name == "RUN":
                # What a command leaves: folders that it makes, what it copies, and the pages that are exported.
                made_here |= set(re.findall(r"mkdir -p (\S+)", step.text)) | set(re.findall(r"&& cp \S+ (\S+)", step.text))
                if "npm run build" in step.text:
                    made_here.add(f"{workdir}/out")
        made[stage.name] = made_here


def test_given_what_git_keeps_when_it_is_sent_to_the_build_then_nothing_of_the_source_is_left_out():
    assert [name for name in tracked() if is_ignored(name)] == []
    assert all(is_ignored(name) for name in (".env", ".git/config", "target/debug/riverrun", "web/node_modules/next/package.json", "web/out/index.html"))


def test_given_the_stage_that_compiles_when_it_installs_then_it_is_what_x_installs():
    wanted = set(re.search(r"^BUILD_PACKAGES=\((.*)\)$", X, re.M).group(1).split())
    # The compiler's own image has these two.
    assert BUILD.packages() == wanted - {"curl", "ca-certificates"}


def test_given_the_stage_of_the_pages_when_it_builds_then_its_commands_are_those_of_x():
    run = [step.command() for step in WEB.of("RUN")]
    said = X.replace(" --silent", "")
    assert run[0] == "npm ci --no-audit --no-fund" and run[0] in said
    assert run[1] == "NEXT_TELEMETRY_DISABLED=1 npm run build" and run[1] in said
    package = re.search(r"@duckdb/[\w-]+-\$machine@\$DUCKDB_PACKAGE_VERSION", run[2]).group()
    assert package in X and "package/libduckdb.so" in run[2] and "package/libduckdb.so" in X
    assert int(re.match(r"node:(\d+)", WEB.base).group(1)) >= int(re.search(r"^NODE_MAJOR=(\d+)", X, re.M).group(1))


def test_given_the_command_that_compiles_then_its_package_makes_the_program_that_is_copied():
    command = next(step.command() for step in BUILD.of("RUN") if "cargo" in step.text)
    package = re.search(r"cargo build --locked --release -p (\S+)", command).group(1)
    manifest = (ROOT / "cli/Cargo.toml").read_text()
    assert f'name = "{package}"' in manifest and re.search(r'\[\[bin\]\]\s*name = "riverrun"', manifest)
    assert "target/release/riverrun /usr/local/bin/riverrun" in command
    assert IMAGE.of("ENTRYPOINT")[0].text == '["riverrun"]' and IMAGE.of("CMD")[0].text == '["serve"]'


def test_given_the_image_then_its_user_has_a_group_of_its_own_and_the_folder_that_it_writes():
    made = " ".join(step.command() for step in IMAGE.of("RUN"))
    user = IMAGE.of("USER")[0].text
    home = IMAGE.of("WORKDIR")[0].text
    assert f"groupadd --gid {user} " in made and f"useradd --uid {user} --gid {user} " in made
    assert re.search(rf"install -d -o {user} -g {user} -m 0700 {home} {home}/models(?: |$)", made)
    assert f'["{home}"]' == IMAGE.of("VOLUME")[0].text and f"RIVERRUN_DATA_DIR={home}" in IMAGE.of("ENV")[0].words()


def libraries(program):
    """Paths of the shared libraries that a program is started with."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert "not found" not in listed, listed
    return re.findall(r"=> (/\S+)", listed)


def package_of(library):
    real = os.path.realpath(library)
    # Before the folders of /bin and /lib were one with those of /usr, packages named them so.
    for path in (library, real, real.removeprefix("/usr")):
        owner = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if owner.returncode == 0:
            return owner.stdout.split(":")[0]
    return None


# What every Debian has.
BASE = {"libc6", "libgcc-s1"}


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="wants Debian's packages")
def test_given_the_binary_when_its_libraries_are_asked_for_then_the_image_installs_their_packages_and_no_others():
    found = {library: package_of(library) for library in libraries(BINARY) if "libduckdb" not in library}
    assert None not in found.values(), found
    # Packages of time_t with 64 bits have another name, where there is one.
    needed = {package.removesuffix("t64") for package in found.values()} - BASE
    installed = {package for package in IMAGE.packages() if package.startswith("lib") or package == "zlib1g"}
    assert needed == installed
    assert "/duckdb/libduckdb.so" in " ".join(step.text for step in IMAGE.of("COPY")), "DuckDB's library is no package"
    assert {"ca-certificates", "git"} <= IMAGE.packages(), "TLS to others, and sources that are repositories"
