"""The official client, over every parameter: sync and async, streamed and not."""

import asyncio

import openai
import pytest
from langchain_openai import ChatOpenAI
from server_process import ServerProcess

MESSAGES = [{"role": "user", "content": "Hello there"}]
GREEDY = {"temperature": 0.0}


@pytest.fixture(scope="module")
def client(server: ServerProcess):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


@pytest.fixture(scope="module")
def model(client) -> str:
    return client.models.list().data[0].id


def chat(client, model, **options):
    """The whole answer, checked against the streamed one where both can be had."""
    extra = {"extra_body": options.pop("extra", {})}
    common = {"model": model, "messages": MESSAGES, "max_tokens": 12, **options, **extra}
    whole = client.chat.completions.create(**common)
    if options.get("temperature") == 0.0 or "seed" in options:
        stream = client.chat.completions.create(
            **common, stream=True, stream_options={"include_usage": True}
        )
        texts, reasons, usage = {}, {}, None
        for event in stream:
            usage = event.usage or usage
            for choice in event.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
        for choice in whole.choices:
            assert texts[choice.index] == choice.message.content
            assert reasons[choice.index] == choice.finish_reason
        assert usage.completion_tokens == whole.usage.completion_tokens
        assert usage.prompt_tokens == whole.usage.prompt_tokens
    return whole


def test_model_list(client, model):
    listed = client.models.list()
    assert [entry.id for entry in listed] == [model]
    assert listed.data[0].owned_by == "pinfer"


def test_chat(client, model):
    answer = chat(client, model, **GREEDY)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 12


def test_sampling_parameters_are_taken(client, model):
    greedy = chat(client, model, **GREEDY).choices[0].message.content
    assert chat(client, model, temperature=5.0, extra={"top_k": 1}).choices[0].message.content == (
        greedy
    )
    assert chat(client, model, temperature=5.0, top_p=1e-9).choices[0].message.content == greedy
    assert chat(client, model, temperature=5.0, extra={"min_p": 1.0}).choices[
        0
    ].message.content == (greedy)
    for penalty in (
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
        {"extra": {"repetition_penalty": 50.0}},
    ):
        assert chat(client, model, **GREEDY, **penalty).choices[0].message.content != greedy
    assert chat(client, model, **GREEDY, logit_bias={"10": 100}).usage.completion_tokens == 12


def test_seed(client, model):
    def texts(seed):
        answer = chat(client, model, seed=seed, temperature=2.0, n=3)
        return [choice.message.content for choice in answer.choices]

    assert texts(7) == texts(7)
    assert texts(7) != texts(8)
    assert len(set(texts(7))) == 3  # every choice has a random stream of its own


def test_ids_that_may_be_sampled(client, server, model):
    answer = chat(client, model, temperature=3.0, extra={"allowed_token_ids": [10]})
    one = server.post("/detokenize", {"tokens": [10]}).json()["prompt"]
    assert answer.choices[0].message.content == one * 12
    banned = chat(client, model, temperature=3.0, seed=1,
                  extra={"allowed_token_ids": [10, 11], "bad_words": [one]})  # fmt: skip
    assert one not in banned.choices[0].message.content


def test_end_rules(client, model):
    free = chat(client, model, **GREEDY, extra={"ignore_eos": True}).choices[0]
    text = free.message.content
    assert free.finish_reason == "length"
    cut = chat(client, model, **GREEDY, stop=text[4:6], extra={"ignore_eos": True}).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == text[: text.index(text[4:6])]
    kept = chat(client, model, **GREEDY, stop=[text[4:6]],
                extra={"ignore_eos": True, "include_stop_str_in_output": True})  # fmt: skip
    assert kept.choices[0].message.content == text[: text.index(text[4:6]) + 2]
    short = chat(client, model, **GREEDY, max_completion_tokens=3, extra={"ignore_eos": True})
    assert short.usage.completion_tokens == 3


def test_logprobs(client, model):
    answer = chat(client, model, **GREEDY, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 4
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy
        assert entry.top_logprobs[0].bytes == entry.bytes
    joined = b"".join(bytes(entry.bytes) for entry in content)
    assert answer.choices[0].message.content in joined.decode(errors="replace")
    plain = chat(client, model, **GREEDY, logprobs=True).choices[0].logprobs.content
    assert [entry.logprob for entry in plain] == [entry.logprob for entry in content]
    assert all(entry.top_logprobs == [] for entry in plain)


def test_streamed_logprobs_are_the_same(client, model):
    options = {"model": model, "messages": MESSAGES, "max_tokens": 12, "logprobs": True,
               "top_logprobs": 2, **GREEDY}  # fmt: skip
    whole = client.chat.completions.create(**options).choices[0].logprobs.content
    streamed = []
    for event in client.chat.completions.create(**options, stream=True):
        if event.choices[0].logprobs:
            streamed += event.choices[0].logprobs.content
    assert streamed == whole


def test_conversations_with_tools_and_parts(client, server, model):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"},
                                          {"type": "text", "text": "there"}]}]  # fmt: skip
    plain = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1)
    with_tools = client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=1, tools=tools, tool_choice="auto"
    )
    assert with_tools.usage.prompt_tokens > plain.usage.prompt_tokens
    client.chat.completions.create(model=model, messages=parts, max_tokens=1)
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        client.chat.completions.create(
            model=model, messages=MESSAGES, tools=tools, tool_choice="required"
        )


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("Hello", 1), (["Hello", "World"], 2), ([10, 11, 12], 1), ([[10, 11], [12, 13, 14]], 2)],
)
def test_completion_prompts(client, model, prompt, count):
    options = {"model": model, "prompt": prompt, "max_tokens": 5, "n": 2, "temperature": 0}
    answer = client.completions.create(**options)
    assert [choice.index for choice in answer.choices] == list(range(2 * count))
    texts = [""] * 2 * count
    for event in client.completions.create(**options, stream=True):
        for choice in event.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in answer.choices]
    assert answer.usage.completion_tokens <= 5 * 2 * count


def test_default_length_of_completions(client, model):
    answer = client.completions.create(
        model=model, prompt="Hello", extra_body={"ignore_eos": True}, temperature=0
    )
    assert answer.usage.completion_tokens == 16


def test_echo_with_logprobs(client, model):
    """How evaluation programs score texts."""
    answer = client.completions.create(
        model=model, prompt=["The sky is blue", "Hello"], max_tokens=0, echo=True, logprobs=1
    )
    for choice, prompt in zip(answer.choices, ["The sky is blue", "Hello"], strict=True):
        assert choice.text == prompt and choice.finish_reason == "length"
        logprobs = choice.logprobs
        assert "".join(logprobs.tokens) == prompt
        assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
        assert all(logprob <= 0 for logprob in logprobs.token_logprobs[1:])
        assert logprobs.text_offset == list(range(len(prompt)))
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs)
    assert answer.usage.completion_tokens == 0
    longer = client.completions.create(
        model=model, prompt="The sky is blue", max_tokens=1, echo=True, logprobs=1, temperature=0
    )
    expected = answer.choices[0].logprobs.token_logprobs
    found = longer.choices[0].logprobs.token_logprobs
    assert found[: len(expected)] == expected and len(found) == len(expected) + 1


def test_echo_is_streamed(client, model):
    options = {"model": model, "prompt": "The sky", "max_tokens": 4, "echo": True, "logprobs": 2,
               "temperature": 0}  # fmt: skip
    whole = client.completions.create(**options).choices[0]
    text, tokens, offsets = "", [], []
    for event in client.completions.create(**options, stream=True):
        text += event.choices[0].text
        if event.choices[0].logprobs:
            tokens += event.choices[0].logprobs.tokens
            offsets += event.choices[0].logprobs.text_offset
    assert text == whole.text
    assert tokens == whole.logprobs.tokens and offsets == whole.logprobs.text_offset


def test_prompt_logprobs(client, model):
    answer = client.completions.create(
        model=model, prompt=[10, 11, 12], max_tokens=1, extra_body={"prompt_logprobs": 2}
    )
    listed = answer.choices[0].model_extra["prompt_logprobs"]
    assert listed[0] is None and len(listed) == 3
    assert "11" in listed[1] and "12" in listed[2]
    assert listed[1]["11"]["logprob"] < 0


def test_cached_prompt_tokens_are_told(client, model):
    prompt = list(range(10, 58))
    first = client.completions.create(model=model, prompt=prompt, max_tokens=1)
    again = client.completions.create(model=model, prompt=prompt, max_tokens=1)
    salted = client.completions.create(
        model=model, prompt=prompt, max_tokens=1, extra_body={"cache_salt": "tenant"}
    )
    assert first.usage.prompt_tokens == again.usage.prompt_tokens == 48
    assert again.usage.prompt_tokens_details.cached_tokens == 32
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


def test_truncated_prompt(client, model):
    prompt = list(range(10, 60))
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    cut = client.completions.create(
        **options, prompt=prompt, extra_body={"truncate_prompt_tokens": 10}
    )
    assert cut.usage.prompt_tokens == 10
    assert cut.choices[0].text == client.completions.create(
        **options, prompt=prompt[-10:]
    ).choices[0].text  # fmt: skip


def test_async_client(server, model):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused") as client:

            async def one(i):
                options = {"model": model, "max_tokens": 8, "temperature": 0, "messages": [
                    {"role": "user", "content": f"Question {i}"}]}  # fmt: skip
                whole = await client.chat.completions.create(**options)
                text = ""
                async for event in await client.chat.completions.create(**options, stream=True):
                    text += event.choices[0].delta.content or ""
                return whole.choices[0].message.content, text

            return await asyncio.gather(*(one(i) for i in range(16)))

    for whole, streamed in asyncio.run(ask()):
        assert whole == streamed


def test_errors_have_their_classes(client, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="another", messages=MESSAGES)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[10] * 300)
    assert caught.value.code == "context_length_exceeded"
    assert "300" in str(caught.value) and "256" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="a", temperature=-1)
    assert caught.value.param == "temperature"


def test_langchain(server, model):
    chat_model = ChatOpenAI(
        base_url=server.url + "/v1", api_key="unused", model=model, temperature=0, max_tokens=8
    )
    whole = chat_model.invoke("Hello there")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    assert "".join(piece.content for piece in chat_model.stream("Hello there")) == whole.content
    answers = chat_model.batch(["Hello there", "Another"])
    assert answers[0].content == whole.content
