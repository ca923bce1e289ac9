"""/openapi.json is valid, and the server keeps it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from raw_http import client_of


@pytest.fixture(scope="module")
def description(server):
    with client_of(server) as client:
        return client.get("/openapi.json").json()


def test_the_description_is_valid(description):
    validate(description)
    assert description["openapi"].startswith("3.")


def test_every_path_is_described(server, description):
    paths = {
        "/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize",
        "/detokenize", "/health", "/ready", "/version", "/metrics",
    }  # fmt: skip
    assert paths <= set(description["paths"])
    with client_of(server) as client:
        for path, methods in description["paths"].items():
            for method in set(methods) & {"get", "post"}:
                answer = client.request(method, path)
                assert answer.status_code not in (404, 405), path
                assert str(answer.status_code) in methods[method]["responses"], path


def schemathesis(server, folder, *flags: str) -> None:
    """Generated requests: no 5xx but the documented ones, and every answer as described."""
    program = Path(sys.executable).parent / "schemathesis"
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,"
        "response_schema_conformance"
    )
    command = [program, "run", f"{server.url}/openapi.json", "--checks", checks, "--no-color"]
    result = subprocess.run(
        [str(part) for part in (*command, *flags)], capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stdout[-6000:]
    assert "11 selected" in result.stdout and "Test cases:" in result.stdout
    assert server.get("/health").status_code == 200
    assert json.loads(server.get("/version").text)["version"]


def test_few_generated_requests(server, tmp_path):
    schemathesis(server, tmp_path, "--phases", "fuzzing", "--max-examples", "2", "--seed", "1")


@pytest.mark.slow
def test_generated_requests_for_ten_minutes(server, tmp_path):
    end = time.monotonic() + 600
    seed = 1
    while time.monotonic() < end:
        flags = ("--phases", "coverage,fuzzing", "--max-examples", "300", "--seed", str(seed))
        schemathesis(server, tmp_path, *flags)
        seed += 1
