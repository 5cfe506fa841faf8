"""What a function's parameters ask for."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Optional

import dagster as dg
import pandas as pd
import polars as pl
import pytest

from marigold_assets.errors import ConfigurationError
from marigold_assets.signature import signature_of


class Bank(dg.ConfigurableResource):
    name: str = ""


class Rate(dg.Config):
    factor: int


def everything(  # noqa: PLR0917
    context: dg.AssetExecutionContext,
    config: Rate,
    bank: Bank,
    plain: dg.ResourceParam[str],
    orders: pd.DataFrame,
    unannotated,
    *,
    previous: pl.DataFrame | None,
) -> pl.DataFrame: ...


def test_every_parameter_is_told_by_name_and_annotation_also_where_that_is_text():
    found = signature_of(everything)
    assert found.context == "context"
    assert found.config is Rate
    assert set(found.resources) == {"bank", "plain"}
    assert found.inputs == {"orders": pd.DataFrame, "unannotated": Any, "previous": pl.DataFrame | None}
    assert found.returns is pl.DataFrame


@pytest.mark.parametrize("name", ["context", "_context", "context_", "_"])
def test_the_first_parameter_may_be_the_context_under_the_names_of_dagster(name):
    scope = {}
    exec(f"def made({name}, orders): ...", scope)
    found = signature_of(scope["made"])
    assert found.context == name
    assert list(found.inputs) == ["orders"]


def test_a_function_without_parameters_or_with_nothing_but_its_past_is_one():
    def alone(): ...

    def chain(previous): ...

    assert signature_of(alone).inputs == {}
    assert signature_of(chain).inputs == {"previous": Any}


def test_a_default_of_none_may_stand_and_any_other_is_refused_since_it_would_never_be_used():
    def fine(orders: Optional[pd.DataFrame] = None, previous=None): ...  # noqa: UP045

    def odd(orders, region="eu"): ...

    assert list(signature_of(fine).inputs) == ["orders", "previous"]
    with pytest.raises(ConfigurationError, match="region"):
        signature_of(odd)


def test_what_is_no_function_is_refused():
    class Callable:
        def __call__(self, orders): ...

    for value in (partial(everything, bank=1), Callable(), 3):
        with pytest.raises(ConfigurationError, match="function"):
            signature_of(value)


def test_an_annotation_that_cannot_be_evaluated_is_named():
    def made(orders: Nowhere): ...  # noqa: F821

    with pytest.raises(ConfigurationError, match="Nowhere"):
        signature_of(made)

    def wrong(orders: "1 +"): ...  # noqa: F722

    with pytest.raises(ConfigurationError, match="wrong"):
        signature_of(wrong)


def test_what_is_said_beside_a_type_does_not_hide_it():
    def made(orders: Annotated[pd.DataFrame, "in cents"], previous: Annotated[pl.DataFrame, 1] | None): ...

    assert signature_of(made).inputs == {"orders": pd.DataFrame, "previous": pl.DataFrame | None}
