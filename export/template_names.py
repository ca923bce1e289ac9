"""What the engine's chat template evaluator knows, by name.

A template that uses anything else is refused at export, by name and line. A test compares these
lists with the engine's own.
"""

from __future__ import annotations

FILTERS = frozenset(
    """
    abs attr batch capitalize center count d default dictsort e escape filesizeformat first float
    forceescape format groupby indent int items join last length list lower map max min reject
    rejectattr replace reverse round safe select selectattr slice sort string sum title tojson trim
    truncate unique upper urlencode wordcount xmlattr
    """.split()
)

TESTS = frozenset(
    """
    odd even divisibleby defined undefined filter test none boolean false true integer float lower
    upper string mapping number sequence iterable callable sameas escaped in == eq equalto != ne >
    gt greaterthan ge >= < lt lessthan <= le
    """.split()
)

GLOBALS = frozenset("range dict namespace cycler joiner raise_exception strftime_now".split())

# Globals of Jinja2's environment that the evaluator lacks (random text).
REFUSED_GLOBALS = frozenset({"lipsum"})

STRING_METHODS = frozenset(
    """
    capitalize casefold center count endswith expandtabs find format format_map index isalnum
    isalpha isascii isdecimal isdigit islower isnumeric isprintable isspace istitle isupper join
    ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition
    rsplit rstrip split splitlines startswith strip swapcase title upper zfill
    """.split()
)

# Methods of Python's own types that a template could call in Jinja2 but not in the evaluator.
REFUSED_METHODS = frozenset(
    """
    as_integer_ratio bit_count bit_length conjugate encode from_bytes fromhex hex is_integer
    isdisjoint isidentifier maketrans mapping striptags to_bytes translate unescape
    """.split()
)

# Filters and tests whose name comes as an argument: map("upper"), select("defined").
FILTERS_NAMING_FILTERS = {"map": 0}
FILTERS_NAMING_TESTS = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}
