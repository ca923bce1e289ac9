"""The components of a package that are not ours, and their licences.

Usage: python packaging/sbom.py BUILD_DIR OUTPUT_DIR [--file SHIPPED]...   (package.py imports it)

What is in the program and the libraries is not listed by hand: the linker says which archives and
start files it takes (it links once more, with --trace), the build's dependency log which headers
each object was compiled with, dpkg whose files these are. --file names a shipped file that is not
ours (libonig.so.5). OUTPUT_DIR gets
  sbom.spdx.json   SPDX 2.3
  licenses/        each Debian package's copyright file, and the common licences they refer to
                   (.gz: a file that would be larger than all others together)
  copyright        our licence, and which of these is whose
Equal builds give equal files; the document's time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[1]
COMPONENTS = Path(__file__).parent / "components.toml"
COMMON_LICENSES = Path("/usr/share/common-licenses")
COMMON_LICENSE = re.compile(rf"{COMMON_LICENSES}/([A-Za-z0-9.-]*[A-Za-z0-9])")
LARGE_TEXT = 1 << 18
OUR_LICENSE = f"""\
pinfer is licensed under the Apache License, Version 2.0. On Debian systems its text is
{COMMON_LICENSES}/Apache-2.0; it is also licenses/Apache-2.0.txt beside this file.

What else is in it, and under which licence (sbom.spdx.json says the same for programs):
"""
# The program, the library with its version, the object that libpinfer.a holds.
TARGETS = ("engine_cpp/cli/pinfer", "engine_cpp/libpinfer.so.*", "engine_cpp/pinfer_object.o")
# How a component gets into what is shipped, by the kind of the file that was found.
COMPILED_IN, LINKED_IN, SHIPPED_BESIDE = "headers", "static", "beside"


@dataclass
class Component:
    source: str  # Debian's source package
    version: str
    name: str
    license: str
    packages: set[str] = field(default_factory=set)  # binary packages: where copyright files lie
    kinds: set[str] = field(default_factory=set)


def output_of(*command: str, **options: Any) -> str:
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"sbom: {shlex.join(map(str, command))[:300]}\n{result.stdout}{result.stderr}")
    return result.stdout


def linked_files(build: Path, target: str) -> set[Path]:
    """Objects and archives that the link of a target reads, as the linker names them."""
    line = output_of("ninja", "-t", "commands", "-s", target, cwd=build).splitlines()[-1]
    # ": && LINK && :", or with commands behind it that make links to the library.
    link = next(part for part in line.split(" && ") if " -o " in part)
    words = shlex.split(link)
    with tempfile.TemporaryDirectory() as folder:
        words[words.index("-o") + 1] = str(Path(folder) / "linked")
        traced = output_of(*words, "-Wl,--trace", cwd=build)
    return {build / file for file in traced.splitlines() if not file.startswith("(")}


def object_files(build: Path, target: str) -> set[str]:
    inputs = output_of("ninja", "-t", "inputs", target, cwd=build).splitlines()
    return {file for file in inputs if file.endswith(".o")}


def header_files(build: Path, objects: set[str]) -> set[Path]:
    """What the objects were compiled with, from the build's log of dependencies."""
    files, wanted = set(), False
    for line in output_of("ninja", "-t", "deps", cwd=build).splitlines():
        if not line.startswith(" "):
            wanted = line.split(": #deps")[0] in objects
        elif wanted:
            files.add(build / line.strip())
    return files


def is_shared(file: Path) -> bool:
    return re.search(r"\.so(\.\d+)*$", file.name) is not None


def owners(files: set[Path]) -> dict[Path, str]:
    """The Debian package of each file; exits if a file belongs to none."""
    found: dict[Path, str] = {}
    real = {Path(os.path.realpath(file)) for file in files}
    wanted = {str(path): path for path in real}
    # On a merged /usr, dpkg knows some files by their old place.
    names = [*wanted, *(name[4:] for name in wanted if name.startswith("/usr/lib"))]
    listed = subprocess.run(["dpkg", "-S", *sorted(names)], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        package, _, name = line.rpartition(": ")
        path = wanted.get(name) or wanted.get("/usr" + name)
        if path is not None and not package.startswith("diversion"):
            found[path] = package.split(",")[0]
    missing = sorted(str(path) for path in real - set(found))
    if missing:
        sys.exit(f"sbom: no Debian package has {', '.join(missing[:5])}: its licence is unknown")
    return found


def built_targets(build: Path) -> list[str]:
    found = [sorted(build.glob(pattern)) for pattern in TARGETS]
    for pattern, files in zip(TARGETS, found, strict=True):
        if not files:
            sys.exit(f"sbom: {build / pattern} is missing: build it first")
    return [str(file.relative_to(build)) for files in found for file in files]


def packages_of(kinds: dict[Path, str]) -> dict[str, set[str]]:
    """Debian packages of files, with the kinds of their files."""
    packages: dict[str, set[str]] = {}
    owner = owners(set(kinds))
    for file, kind in kinds.items():
        packages.setdefault(owner[Path(os.path.realpath(file))], set()).add(kind)
    return packages


def packages_in_build(build: Path) -> dict[str, set[str]]:
    """Debian packages of what is in the program and the libraries."""
    kinds: dict[Path, str] = {}
    for target in built_targets(build):
        for file in linked_files(build, target):
            if not is_shared(file):
                kinds[file] = LINKED_IN
        for file in header_files(build, object_files(build, target)):
            kinds.setdefault(file, COMPILED_IN)
    # What is in the source or build tree is ours.
    foreign = {
        file: kind
        for file, kind in kinds.items()
        if not Path(os.path.realpath(file)).is_relative_to(ROOT)
        and not Path(os.path.realpath(file)).is_relative_to(build)
    }
    return packages_of(foreign)


def describe(packages: dict[str, set[str]]) -> list[Component]:
    """The components, by Debian's source packages; exits if one is not in components.toml."""
    known = tomllib.loads(COMPONENTS.read_text())["component"]
    components: dict[str, Component] = {}
    query = "${binary:Package} ${source:Package} ${source:Version}\n"
    for line in output_of("dpkg-query", "-W", "-f", query, *sorted(packages)).splitlines():
        package, source, version = line.split()
        entry = next((e for e in known if re.fullmatch(e["source"], source)), None)
        if entry is None:
            sys.exit(f"sbom: {source} (package {package}) is in what is shipped, but not in"
                     f" {COMPONENTS.name}: look at its licence, then add it")  # fmt: skip
        component = components.setdefault(
            source, Component(source, version, entry["name"], entry["license"])
        )
        name = package.split(":")[0]
        component.packages.add(name)
        component.kinds |= packages.get(package) or packages[name]
    return [components[source] for source in sorted(components)]


# ---- what is written ----


def version_of_pinfer() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def distribution() -> str:
    text = Path("/etc/os-release").read_text()
    values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.M))
    return f"{values['ID']}-{values.get('VERSION_ID', 'unstable')}"


def comment(component: Component) -> str:
    said = {
        COMPILED_IN: "headers are compiled in",
        LINKED_IN: "objects are linked in",
        SHIPPED_BESIDE: "is shipped beside the program",
    }
    return "; ".join(said[kind] for kind in sorted(component.kinds))


def spdx_document(components: list[Component]) -> dict:
    def package(identifier: str, name: str, version: str, license_name: str) -> dict:
        return {
            "SPDXID": f"SPDXRef-{identifier}",
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": license_name,
            "licenseDeclared": license_name,
            "copyrightText": "NOASSERTION",
        }

    version = version_of_pinfer()
    packages = [package("pinfer", "pinfer", version, "Apache-2.0")]
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-pinfer")]
    for component in components:
        identifier = re.sub(r"[^A-Za-z0-9.-]", "-", component.source)
        entry = package(identifier, component.name, component.version, component.license)
        entry["supplier"] = "Organization: Debian"
        entry["comment"] = comment(component)
        locator = (
            f"pkg:deb/debian/{component.source}@{component.version}"
            f"?arch=source&distro={distribution()}"
        )
        entry["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": locator.replace("+", "%2B"),
            }
        ]
        packages.append(entry)
        relationships.append(("SPDXRef-pinfer", "CONTAINS", entry["SPDXID"]))
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"pinfer-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/pinfer-{version}-{digest}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: pinfer-sbom-{version}"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": of, "relationshipType": kind, "relatedSpdxElement": to}
            for of, kind, to in relationships
        ],
    }


def write_licenses(components: list[Component], output: Path) -> None:
    """Each copyright file, and the licences that they only name because every Debian has them."""
    folder = output / "licenses"
    folder.mkdir(parents=True)
    lines = [OUR_LICENSE]
    referred = {"Apache-2.0"}
    for component in components:
        for package in sorted(component.packages):
            file = Path("/usr/share/doc") / package / "copyright"
            if not file.exists():
                sys.exit(f"sbom: {file} is missing (was documentation left out of this system?)")
            text = file.read_text(errors="replace")
            name = f"{package}.txt"
            if len(text) > LARGE_TEXT:
                name += ".gz"
                (folder / name).write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
            else:
                shutil.copyfile(file, folder / name)
            referred |= set(COMMON_LICENSE.findall(text))
            lines.append(
                f"\n{component.name} {component.version}, {component.license}: "
                f"{comment(component)}.\n  licenses/{name}\n"
            )
    for name in sorted(referred):
        if (COMMON_LICENSES / name).is_file():
            shutil.copyfile(COMMON_LICENSES / name, folder / f"{name}.txt")
    (output / "copyright").write_text("".join(lines))


def write(packages: dict[str, set[str]], beside: list[Path], output: Path) -> None:
    """All of it for what a build holds (packages) and foreign files that are shipped with it."""
    all_packages = {name: set(kinds) for name, kinds in packages.items()}
    for name, kinds in packages_of(dict.fromkeys(beside, SHIPPED_BESIDE)).items():
        all_packages.setdefault(name, set()).update(kinds)
    components = describe(all_packages)
    shutil.rmtree(output, ignore_errors=True)
    write_licenses(components, output)
    document = json.dumps(spdx_document(components), indent=1, sort_keys=True, ensure_ascii=False)
    (output / "sbom.spdx.json").write_text(document + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="components and licences of what is shipped")
    parser.add_argument("build", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--file", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    if "SOURCE_DATE_EPOCH" not in os.environ:
        sys.exit("sbom: SOURCE_DATE_EPOCH is not set")
    write(packages_in_build(arguments.build.resolve()), arguments.file, arguments.output)


if __name__ == "__main__":
    main()
