"""The market in Dagster's own user interface, driven in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from marigold_assets.stores.duckdb import DuckDBStore

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120
# Without these the browser looks for hosts of its vendor, which a closed network refuses.
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_SECONDS} s"
        time.sleep(0.2)
    return found


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.fixture
def market(tmp_path):
    """`dagster dev` with the market on a free port; gives its address and its warehouse."""
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    warehouse = tmp_path / "warehouse.duckdb"
    variables = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "PWD": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "MARIGOLD_MARKET_DB": str(warehouse),
    }
    dagster = Path(sys.executable).parent / "dagster"
    subprocess.run([dagster, "instance", "info"], check=True, cwd=tmp_path, env=variables, capture_output=True)
    log = (tmp_path / "dagster-dev.log").open("w")
    server = subprocess.Popen(
        [dagster, "dev", "-w", str(PROJECT / "workspace.yaml"), "--host", "127.0.0.1", "--port", str(port)],
        cwd=tmp_path,
        env=variables,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for("the user interface", lambda: answers(f"http://127.0.0.1:{port}/server_info"))
        yield f"http://127.0.0.1:{port}", DuckDBStore(str(warehouse))
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        log.close()


@pytest.fixture
def page():
    sync_api = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium")
    assert browser_path, "this test drives Chromium: install it, or leave out -m browser"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        yield page
        browser.close()


def launch(page, address, asset, days):
    """Materialize days from the page of an asset."""
    page.goto(f"{address}/assets/{asset}")
    page.get_by_role("button", name="Materialize").first.click()
    picked = page.get_by_placeholder("ex: 2024-01-01")
    picked.fill(days)
    picked.press("Tab")
    page.get_by_role("button", name="Launch").last.click()


def swaps(store, owner, count):
    def found():
        entries = [entry for entry in store.ledger() if entry.owner == owner]
        return len(entries) == count and entries

    return wait_for(f"the swaps of {owner}", found)


def shown_of_partition(page, address, asset, key):
    page.goto(f"{address}/assets/{asset}?view=partitions&partition={key}")
    page.get_by_text("marigold/fencing_token").first.wait_for()
    return page.inner_text("body")


def test_days_and_a_chain_picked_in_the_ui_are_swapped_and_show_what_each_partition_holds(market, page):
    address, store = market
    keys = ["2024-01-01", "2024-01-02", "2024-01-03"]
    launch(page, address, "raw_orders", "[2024-01-01...2024-01-03], 2024-12-25")
    orders = swaps(store, "raw_orders", 4)
    assert {entry.partition_key for entry in orders} == {*keys, "2024-12-25"}
    [closed_day] = [entry for entry in orders if entry.partition_key == "2024-12-25"]
    shown = shown_of_partition(page, address, "raw_orders", "2024-12-25")
    assert closed_day.row_count == 0
    assert closed_day.content_hash in shown
    assert closed_day.swap_id in shown

    launch(page, address, "customer_tiers", "[2024-01-01...2024-01-03]")
    tiers = swaps(store, "customer_tiers", 3)
    assert [entry.partition_key for entry in tiers] == keys
    assert len({entry.run_id for entry in tiers}) == 1
    for entry in tiers:
        shown = shown_of_partition(page, address, "customer_tiers", entry.partition_key)
        assert entry.content_hash in shown
        assert entry.swap_id in shown
        assert re.search(rf"dagster/partition_row_count\s+{entry.row_count}\s", shown)
    page.goto(f"{address}/assets/customer_tiers?view=events")
    page.get_by_text("Partition 2024-01-03 materialized").first.wait_for()
    lines = page.inner_text("body").splitlines()
    assert [line for line in lines if line in keys] == keys[::-1]


def test_a_launch_shows_its_price_and_its_runs(market, page, tmp_path):
    """As tags: this user interface shows neither title nor description of a backfill, which its API has."""
    address, store = market
    page.goto(f"{address}/deployment/daemons")
    page.get_by_text("Backfill").first.wait_for()
    marigold = Path(sys.executable).with_name("marigold")
    days = ["--from", "2024-01-01", "--to", "2024-01-03"]
    variables = {name: value for name, value in os.environ.items() if name != "PWD"} | {
        "DAGSTER_HOME": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
        "MARIGOLD_MARKET_DB": str(store.connector.secrets.database),
    }
    launched = subprocess.run(
        [marigold, "launch", "raw_orders", *days, "--yes", "-w", str(PROJECT / "workspace.yaml")],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr
    name, backfill = re.search(r"Launched (\w{8}) \(backfill (\w{8})\)", launched.stdout).groups()
    for place in ("overview/backfills", f"runs/b/{backfill}?tab=runs"):
        page.goto(f"{address}/{place}")
        page.get_by_text(f"marigold/launch: {name}").first.wait_for()
        assert re.search(r'marigold/price: \{"wall":\[\d', page.inner_text("body"))
    assert [entry.partition_key for entry in swaps(store, "raw_orders", 3)] == [
        "2024-01-01",
        "2024-01-02",
        "2024-01-03",
    ]
