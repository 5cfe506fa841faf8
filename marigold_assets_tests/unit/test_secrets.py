"""What messages may say about a database and its settings."""

from __future__ import annotations

import pytest

from marigold_assets.stores.connection import Connector
from marigold_assets.stores.location import Secrets


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("MARIGOLD_DB", "/data/acme-corp/private.duckdb")
    monkeypatch.setenv("MARIGOLD_WORD", "hunter2hunter2")
    monkeypatch.setenv("MARIGOLD_USER", "dagster")


def test_a_path_that_is_no_secret_is_shown():
    secrets = Secrets.of("/home/dagster/market.duckdb", {"custom_user_agent": "dagster", "memory_limit": "1GB"})
    assert secrets.database == "/home/dagster/market.duckdb"
    assert secrets.scrub("IO Error: /home/dagster/market.duckdb") == "IO Error: /home/dagster/market.duckdb"


def test_a_path_from_the_environment_is_named_by_its_variable():
    secrets = Secrets.of("/data/acme-corp/private.duckdb", {})
    assert secrets.database == "$MARIGOLD_DB"
    text = "cannot open /data/acme-corp/private.duckdb: /data/acme-corp is gone, private.duckdb.wal too"
    assert "acme" not in secrets.scrub(text)
    assert "private" not in secrets.scrub(text)


@pytest.mark.parametrize(
    "config",
    [
        {"motherduck_token": "swordfish"},
        {"s3_secret_access_key": "swordfish"},
        {"settings": {"inner": {"password": "swordfish"}}},
        {"secrets": ["swordfish", 3, None]},
    ],
    ids=str,
)
def test_a_setting_whose_name_says_secret_is_hidden(config):
    assert Secrets.of("/data/x.duckdb", config).scrub("the swordfish!") == "the ***!"


def test_a_setting_that_came_from_the_environment_is_hidden():
    assert Secrets.of("/data/x.duckdb", {"anything": "hunter2hunter2"}).scrub("hunter2hunter2") == "***"


def test_a_longer_secret_is_hidden_whole_when_it_contains_a_shorter_one():
    secrets = Secrets.of("/x.duckdb", {"key": "abcd", "other_key": "abcdefgh"})
    assert secrets.scrub("abcdefgh") == "***"


def test_a_secret_within_a_path_is_hidden_there():
    assert Secrets.of("/data/swordfish/x.duckdb", {"token": "swordfish"}).database == "/data/***/x.duckdb"


def test_a_refused_database_is_not_shown(monkeypatch):
    monkeypatch.setenv("MARIGOLD_DB", "md:acme?motherduck_token=swordfish")
    with pytest.raises(Exception, match="remote database") as caught:
        Connector("md:acme?motherduck_token=swordfish")
    assert "swordfish" not in str(caught.value)


def test_a_short_name_is_not_hidden_since_that_would_garble_every_message(monkeypatch):
    monkeypatch.setenv("DB", "/srv/acme-corp/x.duckdb")
    secrets = Secrets.of("/srv/acme-corp/x.duckdb", {})
    assert secrets.scrub("an example in /srv/acme-corp/x.duckdb or x.duckdb") == "an example in *** or ***"
