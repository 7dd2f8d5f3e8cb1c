"""The steps of a Dockerfile: what the image's tests and the image built by hand read."""

import re
import shlex
from dataclasses import dataclass, field


@dataclass
class Step:
    """One instruction, its continued lines joined."""

    name: str
    text: str

    def flags(self):
        """`--from=web` and the like, by name."""
        return dict(re.findall(r"--([a-z]+)=(\S+)", re.match(r"(?:--\S+\s+)*", self.text).group()))

    def words(self):
        return [word for word in shlex.split(self.text) if not word.startswith("--")]

    def command(self):
        """What a shell gets of a RUN."""
        return re.sub(r"^(?:--\S+\s+)+", "", self.text)


@dataclass
class Stage:
    base: str
    name: str
    steps: list = field(default_factory=list)

    def of(self, name):
        return [step for step in self.steps if step.name == name]

    def packages(self):
        """What its `apt-get install` names."""
        found = re.search(r"apt-get install (.*?)(?:&&|$)", " ".join(step.command() for step in self.of("RUN")))
        return {word for word in (found.group(1).split() if found else []) if not word.startswith("-")}


def stages(text):
    """The stages of a Dockerfile, the last of which is the image."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M)
    joined = re.sub(r"\\\n\s*", "", text)
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, alias = rest.partition(" AS ")
            found.append(Stage(base.strip(), alias.strip()))
        else:
            found[-1].steps.append(Step(name, rest.strip()))
    return found
