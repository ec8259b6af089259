"""The messages of `InvalidArgument`."""

from dressage.errors import InvalidArgument


def test_a_message_has_field_value_and_what_is_expected():
    error = InvalidArgument(field="--seeds", value="three", expected="a whole number")
    assert str(error) == "--seeds: invalid value (got 'three'); expected a whole number"
    assert (error.field, error.expected, error.reason) == ("--seeds", "a whole number", "INVALID_ARGUMENT")


def test_a_message_names_the_problem_and_the_remedy():
    error = InvalidArgument(
        field="--env", problem="missing", expected="an id", remedy="`dressage envs list` lists them."
    )
    assert str(error) == "--env: missing; expected an id. `dressage envs list` lists them."


def test_a_long_value_is_shortened():
    message = str(InvalidArgument(field="text", value="x" * 500, expected="at most 80 characters"))
    assert message == f"text: invalid value (got '{'x' * 76}...); expected at most 80 characters"


def test_none_is_a_value():
    assert str(InvalidArgument(field="a", value=None, expected="a number")).startswith("a: invalid value (got None);")
