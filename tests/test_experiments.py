# SPDX-License-Identifier: MIT
"""The experiments at toy size from end to end, without data, and the report of their records."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "outliers",
    "indirect",
    "noise",
    "angle",
    "removal",
    "multiview",
    "sections",
    "means",
    "tof",
    "desk",
}
HELD = [  # claims that even toys bear out
    ("outliers", "bunny: JRMPC-B below ICP with 20 % of outliers and more"),
    ("outliers", "bunny: JRMPC-B below CPD / ECMPR with 20 % of outliers and more"),
    ("indirect", "Mean of both mappings and all models: JRMPC-B below ICP at 10 dB"),
    (
        "multiview",
        (
            "Rotation error [deg] without added noise: register at or below every other method in"
            " every column"
        ),
    ),
    ("removal", "10 dB: the means start in a small cell and grow to the size of the object"),
    (
        "tof",
        (
            "Held-out residual [1e-3 of the extent]: register at or below every other method in"
            " every column"
        ),
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What `python -m experiments all report --size toy` leaves behind without any data set."""
    folder = tmp_path_factory.mktemp("results")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    environment = {**os.environ, "PYTHONPATH": path, "COFRAME_DATA": str(folder / "nothing")}
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "experiments",
        "all",
        "report",
        "--size",
        "toy",
        "--output",
        str(folder),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.mark.slow
def test_every_experiment_leaves_its_record_and_pictures(folder, records):
    assert set(records) == NAMES
    for name, each in records.items():
        assert (each["name"], each["size"]) == (name, "toy")
        assert each["seeds"][0] == 0
        assert each["seconds"] >= 0
        assert each["versions"]["coframe"]
        assert each["tables"]
        for figure in each["figures"]:
            assert 0 < (folder / figure).stat().st_size < 150_000
    assert {name for name, each in records.items() if not each["figures"]} == {
        "indirect",
        "multiview",
        "noise",
    }


@pytest.mark.slow
def test_every_method_has_a_figure_and_a_time_in_every_table(records):
    for name in ("outliers", "indirect", "angle"):
        for table in records[name]["tables"]:
            rows = [row for row in table["rows"] if row["method"] != "start"]
            assert {"ICP", "GMMReg", "CPD / ECMPR", "JRMPC-B", "register"} <= {
                row["method"] for row in rows
            }
            pooled = table["title"].startswith("Mean of")  # the same runs once more
            assert all(None not in row["ours"] and (pooled or row["seconds"] > 0) for row in rows)


@pytest.mark.slow
def test_learning_curves_of_every_method_are_recorded(records):
    ((_, curves),) = records["outliers"]["curves"].items()
    for name, each in curves.items():
        (table,) = [
            table for table in records["outliers"]["tables"] if table["title"].startswith(name)
        ]
        final = {
            row["method"]: row["ours"][-1] for row in table["rows"] if row["method"] != "start"
        }
        assert each.keys() == final.keys()
        assert all(len(curve) == 100 for curve in each.values())
        assert each["JRMPC-B"][-1] == pytest.approx(final["JRMPC-B"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), HELD)
def test_claims_that_hold_at_any_size(records, module, name, text):
    (claim,) = [claim for claim in module(name).claims(records[name]) if claim.text == text]
    assert claim.holds, claim.detail


@pytest.mark.slow
def test_report_shows_every_table_and_every_claim(folder, records, module):
    text = (folder / "RESULTS.md").read_text()
    for name, each in records.items():
        assert f"\n## {each['name']}\n" in text
        for table in each["tables"]:
            for row in table["rows"]:
                assert f"\n| {row['method']} |" in text
                if row["ours"] and row["ours"][0] is not None:
                    assert f"{row['ours'][0]:.{table['digits']}f}" in text
        for claim in module(name).claims(each):
            assert f"- {claim.text}" in text


def test_results_are_those_of_the_records(module):
    """RESULTS.md is what `python -m experiments report` writes, its pictures are there and small,
    and no claim surprises.
    """
    results = ROOT / "experiments" / "results"
    experiments, report = module("__main__").EXPERIMENTS, module("report")
    records = report.read(results, experiments)
    assert set(records) == NAMES
    assert (ROOT / "RESULTS.md").read_text() == report.text(
        records, experiments, "experiments/results"
    )
    for name, each in records.items():
        assert each["size"] == "paper"
        assert not module("claims").surprises(experiments[name], each)
        for figure in each["figures"]:
            assert 0 < (results / figure).stat().st_size < 150_000


def test_the_orders_that_the_paper_rests_on_must_hold(module):
    """They may not be moved to the known disagreements."""
    noisy = [
        f"Rotation error [deg] with 25 dB noise: JRMPC-B below {rival}"
        for rival in ("MAICP", "MATrICP")
    ]
    assert not set(noisy) & set(module("multiview").KNOWN)


@pytest.fixture
def module(monkeypatch):
    """A module of the experiments, which are not installed."""
    import importlib

    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"experiments.{name}")


def test_claims_name_what_stands_against_them(module):
    record, claims = module("record"), module("claims")
    rows = {
        "start": [0.0, 0.0],
        "ICP": [0.5, [0.0, 0.2]],
        "JRMPC-B": [0.2, [0.2, 0.4]],
        "register": [0.1, 0.1],
    }
    table = record.table("t", ["a", "b"], rows, paper={"ICP": (0.45, 0.2), "CPD": (0.1, 0.1)})
    assert claims.below(table, "JRMPC-B", ["ICP"], "x", ["a"]).holds
    claim = claims.below(table, "JRMPC-B", ["ICP"], "x")
    assert (claim.holds, claim.detail) == (False, "ICP 0.100 < 0.300 in b")
    # a difference of 0.3, a standard error of 0.115
    rows |= {
        "ICP": [0.5, [0.0, 0.1, 0.2]],
        "JRMPC-B": [0.2, [0.1, 0.4, 0.7]],
    }
    claim = claims.below(record.table("t", ["a", "b"], rows), "JRMPC-B", ["ICP"], "x")
    assert claim.detail == "ICP 0.100 < 0.400 in b, 2.6 s.e."
    assert claims.below(table, "JRMPC-B", ["CPD"], "x").detail == "CPD was not run"
    best, near = claims.standing([table])
    assert best.holds  # the start is no method
    assert (near.holds, near.detail) == (False, "ICP, b: 0.100, the paper 0.200")


def test_a_claim_that_does_not_come_out_as_expected_fails_after_the_record_is_written(
    module, tmp_path, monkeypatch
):
    main, noise, Claim = module("__main__"), module("noise"), module("claims").Claim
    monkeypatch.setattr(noise, "SEEDS", {"paper": (0,)})
    monkeypatch.setattr(noise, "measure", lambda run: module("record").Found([], {}))
    monkeypatch.setattr(
        noise,
        "claims",
        lambda record: [Claim("new", False, "1 < 2"), Claim("old", True), Claim("fine", True)],
    )
    monkeypatch.setattr(noise, "KNOWN", {"old": "a reason", "forgotten": "another"})
    with pytest.raises(SystemExit) as failure:
        main.main(["noise", "--output", str(tmp_path)])
    assert str(failure.value).splitlines() == [
        "noise: does not hold: new (1 < 2)",
        "noise: a known disagreement holds: old ()",
        "noise: a known disagreement holds: forgotten (no such claim)",
    ]
    assert json.loads((tmp_path / "noise.json").read_text())["name"] == "noise"
    monkeypatch.setattr(noise, "KNOWN", {"new": "a reason"})
    main.main(["noise", "--output", str(tmp_path)])


def test_kept_trials_are_not_run_again(module, tmp_path):
    trials = module("trials")
    made = trials.Trial(np.eye(4)[None], np.zeros((2, 1, 4, 4)), 1.5)
    trials.Store(tmp_path).get("a", lambda: made)
    again = trials.Store(tmp_path).get("a", lambda: pytest.fail("run again"))
    np.testing.assert_array_equal(again.history, made.history)
    assert again.seconds == 1.5
    with pytest.raises(ValueError, match="poses only"):
        again.full  # noqa: B018


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("0-2,7", (0, 1, 2, 7))])
def test_seeds_of_the_command_line(module, text, seeds):
    assert module("__main__").seeds(text) == seeds
