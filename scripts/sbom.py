#!/usr/bin/env python3
"""A CycloneDX bill of materials (https://cyclonedx.org/docs/1.6/json/) of everything that the lock files name, as JSON on
stdout: `scripts/sbom.py >riverrun.cdx.json`. Only the lock files are read; the same files always give the same bill."""

import base64
import json
import sys
import tomllib
import uuid
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
OWN = "riverrun"


def cargo():
    """The components of Cargo.lock and what each depends on."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    by_name = {}
    for package in packages:
        by_name.setdefault(package["name"], []).append(package)

    def ref(package):
        return f"pkg:cargo/{package['name']}@{quote(package['version'])}"

    def named(text):
        # `name`, `name version` or `name version (source)`.
        name, _, rest = text.partition(" ")
        version = rest.partition(" ")[0]
        found = [package for package in by_name[name] if not version or package["version"] == version]
        return ref(found[0])

    components, edges = [], []
    for package in packages:
        part = {"type": "library", "bom-ref": ref(package), "name": package["name"], "version": package["version"], "purl": ref(package)}
        if "checksum" in package:
            part["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
        components.append(part)
        edges.append({"ref": ref(package), "dependsOn": sorted({named(text) for text in package.get("dependencies", [])})})
    return components, edges


def npm():
    """The packages that the web pages are built from."""
    locked = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    components = {}
    for path, package in locked.items():
        if not path or "version" not in package:
            continue
        name = package.get("name") or path.rpartition("node_modules/")[2]
        purl = f"pkg:npm/{quote(name, safe='/')}@{quote(package['version'])}"
        part = {"type": "library", "bom-ref": purl, "name": name, "version": package["version"], "purl": purl,
                "scope": "excluded" if package.get("dev") else "required"}
        algorithm, _, digest = package.get("integrity", "").partition(" ")[0].partition("-")
        if algorithm == "sha512":
            part["hashes"] = [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}]
        if isinstance(package.get("license"), str):
            part["licenses"] = [{"expression": package["license"]}]
        components[purl] = part
    return list(components.values())


def main():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    crates, edges = cargo()
    components = sorted(crates + npm(), key=lambda part: part["bom-ref"])
    own = {"type": "application", "bom-ref": OWN, "name": OWN, "version": version}
    inside = [part["bom-ref"] for part in crates if part["name"].startswith(f"{OWN}-")]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": OWN, "dependsOn": sorted(inside)}, *sorted(edges, key=lambda edge: edge["ref"])],
    }
    json.dump(bill, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
