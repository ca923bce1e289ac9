"""Where a request ends: end ids from every file, ignore_eos, min_tokens, stop ids, stop strings."""

import json
import subprocess

import pytest
import successor_model
from every_way import EveryWay

import pinfer as binding

# The fifth token is the marker of a turn's end: an ordinary token, whose text would be seen.
TURN_CHAIN = [b"o", b"1", b"2", b"3", b"4", b"[turn]", b"5", "</s>", b"6", b"7", b"8"]
TURN_TOKENS = [b"[turn]"]


@pytest.fixture(scope="module")
def turn_tokenizer():
    return successor_model.byte_level(TURN_TOKENS)


def turn_id(tokenizer):
    return successor_model.token_ids(tokenizer, TURN_TOKENS)[0]


@pytest.fixture(scope="module")
def ended_by(pinfer, bundles, turn_tokenizer):
    """Every way over the chain, by name of what the files say about ends."""
    turn = turn_id(turn_tokenizer)
    generation_configs = {
        "list": {"eos_token_id": [2, turn], "temperature": 0.5, "top_p": 0.9},
        "int": {"eos_token_id": turn},
        "null": {"eos_token_id": None, "do_sample": False},
        "missing": None,
    }
    opened = {}

    def get(name):
        if name not in opened:
            path = bundles.successor(
                f"ended-by-{name}", turn_tokenizer, [TURN_CHAIN],
                generation_config=generation_configs[name],
            )  # fmt: skip
            opened[name] = EveryWay(pinfer, path)
        return opened[name]

    yield get
    for ways in opened.values():
        ways.engine.close()


# ---- cfg-eos-list ----


@pytest.mark.parametrize(
    ("name", "text", "num_tokens"),
    # config.json and the tokenizer say </s> in all of them.
    [("list", "1234", 5), ("int", "1234", 5), ("null", "1234[turn]5", 7),
     ("missing", "1234[turn]5", 7)],
)  # fmt: skip
def test_any_listed_id_ends_a_request(ended_by, name, text, num_tokens):
    """Its text is not shown; the ids hold it, once."""
    answer = ended_by(name).ask("go")
    assert answer.text == text and answer.finish_reason == "stop"
    assert len(answer.ids) == num_tokens


def test_the_bundle_lists_the_end_ids(pinfer, ended_by, turn_tokenizer):
    turn = turn_id(turn_tokenizer)
    for name, expected in (
        ("list", [2, turn]),
        ("int", [turn, 2]),
        ("null", [2]),
        ("missing", [2]),
    ):
        command = [pinfer, "inspect", ended_by(name).bundle, "--json"]
        manifest = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert manifest["text"]["eos_token_ids"] == expected


def test_ignore_eos_passes_every_listed_id(ended_by, turn_tokenizer):
    """The marker is text then, and the special </s> is skipped as special tokens are."""
    answer = ended_by("list").ask("go", ignore_eos=True, max_tokens=9)
    assert answer.text == "1234[turn]567" and answer.finish_reason == "length"
    shown = ended_by("list").engine.generate(
        "go", temperature=0.0, max_tokens=9, ignore_eos=True, skip_special_tokens=False
    )
    assert shown.text == "1234[turn]5</s>67" and shown.token_ids == answer.ids


def test_ignore_eos_keeps_the_requests_own_ids(ended_by, turn_tokenizer):
    turn = turn_id(turn_tokenizer)
    answer = ended_by("list").ask("go", ignore_eos=True, stop_token_ids=[turn])
    assert answer.text == "1234" and answer.finish_reason == "stop" and answer.ids[-1] == turn


def test_stop_ids_come_to_the_models_own(ended_by, turn_tokenizer):
    three = successor_model.token_ids(turn_tokenizer, [b"3"])
    assert ended_by("list").ask("go", stop_token_ids=three).text == "12"
    seven = successor_model.token_ids(turn_tokenizer, [b"7"])
    assert ended_by("list").ask("go", stop_token_ids=seven).text == "1234"


def test_one_default_changed_leaves_the_others(ended_by):
    """A request's temperature takes nothing from the file's end ids and its top_p."""
    engine = ended_by("list").engine
    for temperature in (0.0, 1.0):
        answer = engine.generate("go", max_tokens=30, temperature=temperature)
        assert answer.text == "1234" and answer.finish_reason == "stop"
    assert engine.generate("go", max_tokens=30).text == "1234"


@pytest.mark.parametrize("min_tokens", [4, 5, 6])
def test_no_end_before_min_tokens(ended_by, turn_tokenizer, min_tokens):
    """An end id that would come too early is masked: of all the others, equal here, the first id is
    taken, which leaves the chain."""
    answer = ended_by("list").ask("go", min_tokens=min_tokens, max_tokens=8)
    ids = successor_model.token_ids(turn_tokenizer, [b"1", b"2", b"3", b"4"])
    if min_tokens <= 4:
        assert answer.ids == [*ids, turn_id(turn_tokenizer)] and answer.finish_reason == "stop"
    else:
        assert answer.ids == [*ids, 0, 0, 0, 0] and answer.finish_reason == "length"
    assert answer.text == "1234"


# ---- req-stop-spans-tokens ----

STOP_CHAINS = [
    [b"o", b"ABC", b"DEF", b"G", b"HI", b"JK", b"\n", b"LM", "</s>"],
    [b"t", b"x", b"\xc3", b"\xa9y", b"z", "</s>"],
    [b"u", b"aa", b"a", b"ab", b"!", "</s>"],
]
STOP_WHOLE = {"go": "ABCDEFGHIJK\nLM", "gt": "xéyz", "gu": "aaaab!"}


@pytest.fixture(scope="module")
def stops(pinfer, bundles):
    tokens = {t for chain in STOP_CHAINS for t in chain if isinstance(t, bytes) and len(t) > 1}
    tokenizer = successor_model.byte_level(sorted(tokens))
    with EveryWay(pinfer, bundles.successor("stops", tokenizer, STOP_CHAINS)) as ways:
        ways.bytes_of = successor_model.token_bytes(tokenizer)
        yield ways


STOP_CASES = [
    ("go", ["DEFGHIJ"], "ABC", 5),  # over four tokens, ends inside one
    ("go", ["GHIJK", "HI"], "ABCDEFG", 4),  # the one that is complete first
    ("go", ["HI", "GHIJK"], "ABCDEFG", 4),
    ("go", ["CD"], "AB", 2),  # begins inside one token, ends in another
    ("go", ["K"], "ABCDEFGHIJ", 5),
    ("go", ["H"], "ABCDEFG", 4),  # more text behind it in the same token
    ("go", ["C", "BC"], "A", 1),  # complete at one place: the longer one counts
    ("go", ["\n"], "ABCDEFGHIJK", 6),
    ("go", ["FGX", "GHY", "IJK"], "ABCDEFGH", 5),  # after starts that come to nothing
    ("go", ["go", "LMN"], STOP_WHOLE["go"], 8),  # in the prompt only; only begun
    ("gt", ["é"], "x", 3),  # its two bytes lie in two tokens
    ("gt", ["xéy"], "", 3),
    ("gt", ["éz"], STOP_WHOLE["gt"], 5),
    ("gu", ["aaab"], "a", 3),  # starts again inside itself
]


@pytest.mark.parametrize(("prompt", "stop", "text", "num_tokens"), STOP_CASES)
def test_a_stop_string_cuts_the_text(stops, prompt, stop, text, num_tokens):
    """The ids keep what was sampled, up to the token that completes it."""
    answer = stops.ask(prompt, stop=stop)
    assert answer.text == text and answer.finish_reason == "stop"
    assert len(answer.ids) == num_tokens
    data = b"".join(stops.bytes_of.get(i, b"") for i in answer.ids).decode()
    assert data.startswith(text)
    found = stops.engine.generate(prompt, stop=stop, temperature=0.0, max_tokens=30, logprobs=0)
    assert len(found.logprobs) == num_tokens


@pytest.mark.parametrize(("prompt", "stop", "text", "num_tokens"), STOP_CASES)
def test_with_the_stop_string_in_the_output(stops, prompt, stop, text, num_tokens):
    answer = stops.ask(prompt, stop=stop, include_stop_str_in_output=True)
    assert len(answer.ids) == num_tokens
    if text == STOP_WHOLE[prompt]:
        assert answer.text == text
    else:
        assert answer.text.removeprefix(text) in stop


def can_become(text, stop):
    """The longest end of the text that a stop string begins with."""
    lengths = [n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])]
    return max(lengths, default=0)


@pytest.mark.parametrize(("prompt", "stop", "text", "num_tokens"), STOP_CASES)
def test_a_stream_holds_back_no_more_than_it_must(stops, prompt, stop, text, num_tokens):
    """After every piece: all text but the end that could still become a stop string."""
    found, data = "", b""
    for piece in stops.engine.stream(prompt, stop=stop, temperature=0.0, max_tokens=30):
        found += piece.text
        data += b"".join(stops.bytes_of.get(i, b"") for i in piece.token_ids)
        assert text.startswith(found)
        if piece.finish_reason is None:
            complete = data.decode(errors="ignore")
            assert found == complete[: len(complete) - can_become(complete, stop)]
    assert found == text


def test_held_text_comes_at_the_end(stops):
    """max_tokens falls where a stop string has begun: what was held is text after all."""
    answer = stops.ask("go", stop=["DEFGHIJ"], max_tokens=3)
    assert answer.text == "ABCDEFG" and answer.finish_reason == "length"


def test_async_scheduling_ends_where_it_would_without(stops):
    """Stop strings, lengths and end ids; one at a time and all at once."""
    cases = [(prompt, {"stop": stop}) for prompt, stop, _, _ in STOP_CASES]
    cases += [("go", {"max_tokens": n}) for n in (1, 2, 5, 8)]
    cases = [(prompt, {"temperature": 0.0, "logprobs": 1, **options}) for prompt, options in cases]
    expected = [stops.engine.generate(prompt, **options) for prompt, options in cases]
    with binding.Engine(stops.bundle, threads=1, async_scheduling=1) as engine:
        assert [engine.generate(prompt, **options) for prompt, options in cases] == expected
        running = [engine.submit(prompt, **options) for prompt, options in cases]
        assert [generation.wait() for generation in running] == expected
    assert stops.run("go", "--async-scheduling", "--stop", "HI", temperature=0) == "ABCDEFG"
    with pytest.raises(binding.Error, match=r"async_scheduling must be in \[0, 1\], got 2"):
        binding.Engine(stops.bundle, async_scheduling=2)


# ---- req-stop-shapes ----


def test_shapes_of_stop_in_batch(stops):
    def answers(shapes):
        base = {"prompt": "go", "temperature": 0, "max_tokens": 30}
        return stops.batch_lines([base if s is ... else {**base, "stop": s} for s in shapes])

    one = answers(["GH", ["GH"], ["GH", "GH"], ["GH"] + [f"never{i}" for i in range(20)]])
    assert [entry["text"] for entry in one] == ["ABCDEF"] * 4
    none = answers([..., None, [], "y" * (1 << 20), ["\n" * 3]])
    assert [entry["text"] for entry in none] == [STOP_WHOLE["go"]] * 5
    assert {entry["finish_reason"] for entry in none} == {"stop"}
    refused = answers(["", ["", "X"], ["X", ""], [1], [None], {"a": 1}, 7, [["X"]], ...])
    assert all("stop" in entry["error"] for entry in refused[:-1]), refused
    assert refused[-1]["text"] == STOP_WHOLE["go"]


def test_shapes_of_stop_in_python_and_on_the_command_line(stops):
    options = {"temperature": 0.0, "max_tokens": 30}
    for shape in ("GH", ["GH"], ("GH", "GH")):
        assert stops.engine.generate("go", stop=shape, **options).text == "ABCDEF"
    assert stops.engine.generate("go", stop=[], **options).text == STOP_WHOLE["go"]
    for shape in ("", ["", "X"]):
        with pytest.raises(binding.Error, match=r"stop: .*empty"):
            stops.engine.generate("go", stop=shape, **options)
    assert stops.run("go", "--stop", "LM", "--stop", "HI", temperature=0) == "ABCDEFG"
    assert stops.run("go", "--stop", "\n", temperature=0) == "ABCDEFGHIJK"
