# SPDX-License-Identifier: MIT
"""The experiments run from end to end at toy size, without any data, and their report says what their records say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = {"outliers", "indirect", "noise", "angle", "removal", "multiview", "sections", "means", "tof", "desk"}
HELD = [  # claims that even toys bear out
    ("outliers", "bunny: JRMPC-B below ICP with 20 % of outliers and more"),
    ("outliers", "bunny: JRMPC-B below CPD / ECMPR with 20 % of outliers and more"),
    ("indirect", "bunny, 10 dB: JRMPC-B below ICP in both mappings"),
    ("multiview", "Rotation error [deg] with 25 dB noise: JRMPC-B below MAICP"),
    ("removal", "10 dB: the means start in a small cell and grow to the size of the object"),
    ("tof", "Held-out residual [1e-3 of the extent]: register at or below every other method in every column"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `python -m experiments all report --size toy` leaves behind, with no data set in reach."""
    folder = tmp_path_factory.mktemp("results")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    environment = {**os.environ, "PYTHONPATH": path, "COFRAME_DATA": str(folder / "nothing")}
    command = [sys.executable, "-W", "error", "-m", "experiments", "all", "report", "--size", "toy", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_every_experiment_leaves_its_record_and_pictures(folder, records):
    assert set(records) == NAMES
    for name, each in records.items():
        assert (each["name"], each["size"], each["seed"]) == (name, "toy", 0)
        assert each["realisations"] >= 1
        assert each["seconds"] >= 0
        assert each["versions"]["coframe"]
        assert each["tables"]
        for figure in each["figures"]:
            assert 0 < (folder / figure).stat().st_size < 150_000
    assert {name for name, each in records.items() if not each["figures"]} == {"indirect", "multiview", "noise"}


def test_every_method_has_a_figure_and_a_time_in_every_table(records):
    for name in ("outliers", "indirect", "angle"):
        for table in records[name]["tables"]:
            rows = [row for row in table["rows"] if row["method"] != "start"]
            assert {"ICP", "GMMReg", "CPD / ECMPR", "JRMPC-B", "register"} <= {row["method"] for row in rows}
            assert all(row["seconds"] > 0 and None not in row["ours"] for row in rows)


@pytest.mark.parametrize(("name", "text"), HELD)
def test_claims_that_hold_at_any_size(records, name, text):
    (check,) = [check for check in records[name]["checks"] if check["claim"] == text]
    assert check["holds"], check["detail"]


def test_report_shows_every_table_and_every_claim(folder, records):
    text = (folder / "RESULTS.md").read_text()
    for each in records.values():
        assert f"\n## {each['name']}\n" in text
        for table in each["tables"]:
            for row in table["rows"]:
                assert f"\n| {row['method']} |" in text
                if row["ours"] and row["ours"][0] is not None:
                    assert f"{row['ours'][0]:.{table['digits']}f}" in text
        for check in each["checks"]:
            assert f"- {'holds' if check['holds'] else '**does not hold**'}: {check['claim']}" in text


def test_results_are_those_of_the_records(module):
    """RESULTS.md is what `python -m experiments report` writes, and its pictures are there and small."""
    results = ROOT / "experiments" / "results"
    main = module("__main__")
    assert (ROOT / "RESULTS.md").read_text() == module("report").text(results, main.NOTES, "experiments/results")
    records = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    assert set(records) == NAMES
    assert {each["size"] for each in records.values()} == {"paper"}
    for each in records.values():
        for figure in each["figures"]:
            assert 0 < (results / figure).stat().st_size < 150_000


@pytest.fixture
def module(monkeypatch):
    """A module of the experiments, which are not installed."""
    import importlib

    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"experiments.{name}")


def test_claims_name_what_stands_against_them(module):
    record = module("record")
    rows = {"start": [0.0, 0.0], "ICP": [0.5, 0.1], "JRMPC-B": [0.2, 0.3], "register": [0.1, 0.1]}
    table = record.table("t", ["a", "b"], rows, paper={"ICP": (0.45, 0.2), "CPD": (0.1, 0.1)})
    assert record.below(table, "JRMPC-B", ["ICP"], "x", ["a"])["holds"]
    claim = record.below(table, "JRMPC-B", ["ICP"], "x")
    assert (claim["holds"], claim["detail"]) == (False, "ICP 0.100 < 0.300 in b")
    assert record.below(table, "JRMPC-B", ["CPD"], "x")["detail"] == "CPD was not run"
    best, near = record.standing(table)
    assert best["holds"]  # the start is no method
    assert (near["holds"], near["detail"]) == (False, "ICP, b: 0.100, the paper 0.200")
