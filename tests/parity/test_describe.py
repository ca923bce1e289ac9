"""`pinfer describe --json` and the Python dataclasses name the same fields, types and defaults."""

import dataclasses
import json
import subprocess
from enum import Enum

from pinfer.runtime.core import engine_config
from pinfer.runtime.core.engine_config import EngineConfig
from pinfer.runtime.core.sampling_params import SamplingParams

TYPE_NAMES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "int | None": "int or none",
    "list[int]": "list of int",
    "list[list[int]]": "list of lists of int",
    "list[str]": "list of str",
    "dict[int, float]": "map of int to float",
}


def describe(config):
    defaults = config()
    described = []
    for field in dataclasses.fields(config):
        default = getattr(defaults, field.name)
        entry = {"name": field.name, "type": TYPE_NAMES.get(field.type), "default": default}
        if isinstance(default, Enum):
            values = [value.value for value in getattr(engine_config, field.type)]
            entry |= {"type": "enum", "default": default.value, "values": values}
        described.append(entry)
    return described


def test_configs_agree(pinfer):
    command = [str(pinfer), "describe", "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpp = json.loads(output)
    assert cpp["EngineConfig"] == describe(EngineConfig)
    assert cpp["SamplingParams"] == describe(SamplingParams)


def test_every_type_has_a_name():
    for config in (EngineConfig, SamplingParams):
        assert all(entry["type"] is not None for entry in describe(config))
