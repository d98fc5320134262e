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
        assert each["digests"]["measure"]
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
    curves, scatter = records["outliers"]["curves"].values()
    assert {name: each.keys() for name, each in curves.items()} == {
        name: each.keys() for name, each in scatter.items()
    }
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
def test_details_show_every_table_and_every_claim(folder, records, module):
    text = (folder / "details.md").read_text()
    for name, each in records.items():
        assert f"\n## {each['name']}\n" in text
        for table in each["tables"]:
            for row in table["rows"]:
                assert f"\n| {row['method']} |" in text
                if row["ours"] and row["ours"][0] is not None:
                    assert f"{row['ours'][0]:.{table['digits']}f}" in text
        for claim in module(name).claims(each):
            assert f"- {claim.text}" in text
    brief = (folder / "RESULTS.md").read_text()
    assert "All figures are of the code that is here." in brief
    assert all(figure in brief for each in records.values() for figure in each["figures"])


def test_results_are_those_of_the_records(module):
    """The pages are what `python -m experiments report` writes, which names all that is of older
    code; the pictures are there and small, and no claim surprises.
    """
    results = ROOT / "experiments" / "results"
    experiments, report = module("__main__").EXPERIMENTS, module("report")
    records = report.read(results, experiments)
    assert set(records) == NAMES
    for path, text in report.pages(records, experiments, None).items():
        assert path.read_text() == text, f"{path}: run `python -m experiments report`"
    assert len((ROOT / "RESULTS.md").read_text()) < 15_000  # a page that a person reads
    for name, each in records.items():
        assert each["size"] == "paper"
        assert not module("claims").surprises(experiments[name], each)
        for figure in each["figures"]:
            assert 0 < (results / figure).stat().st_size < 150_000


def test_a_figure_of_older_code_is_named(module, monkeypatch):
    record, report, provenance = module("record"), module("report"), module("provenance")
    current = {
        "name": "outliers",
        "digests": {
            "measure": provenance.of_measure("outliers"),
            "methods": {m: provenance.of_method(m) for m in ("ICP", "JRMPC-B")},
        },
    }
    assert record.outdated(current) == []
    assert "code that is here" in report.state({"outliers": current})
    current["digests"]["methods"]["ICP"] = "another"
    assert record.outdated(current) == ["ICP"]
    assert "`outliers` (ICP)" in report.state({"outliers": current})
    current["digests"]["measure"] = "another"
    assert record.outdated(current) == ["ICP", "tables"]
    del current["digests"]
    assert record.outdated(current) == ["everything"]


def test_a_digest_is_of_code_not_of_words(module, tmp_path):
    provenance = module("provenance")

    def digest(text):
        path = tmp_path / "file.py"
        path.write_text(text)
        provenance._digest_of_file.cache_clear()
        return provenance.digest([path])

    plain = digest("def f(x):\n    return x + 1\n")
    assert digest('"""A."""\n\n\ndef f(x):  # why\n    """B."""\n    return (x + 1)\n') == plain
    assert digest("def f(x):\n    return x + 2\n") != plain
    assert digest("def f(x):\n    'a value'\n    return 'another'\n") != plain
    provenance._digest_of_file.cache_clear()


@pytest.mark.parametrize(
    ("method", "entry"),
    [
        ("JRMPC-B", "paper/batch.py"),
        ("JRMPC-I", "paper/incremental.py"),
        ("ICP", "baselines/methods.py"),
        ("pose graph", "baselines/averaged_icp.py"),
        ("register", "api/register.py"),
        ("coframe.track", "sequence/track.py"),
        ("coframe.track_published", "paper/sequence.py"),
    ],
)
def test_the_code_of_a_method_is_all_that_it_imports_but_carriers(module, method, entry):
    """Whatever is imported either belongs to the digest or is listed as carrying values only."""
    provenance = module("provenance")
    own = set(provenance.files(provenance.LIBRARY, provenance.poses(method)))
    carriers = set(provenance.files(provenance.LIBRARY, provenance.CARRIERS))
    assert provenance.LIBRARY / entry in own
    missing = {path for path in imported_by(provenance.LIBRARY, own) if path not in carriers} - own
    assert not missing


def imported_by(library, paths):
    """The files of the library that these files import."""
    import ast

    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coframe"):
                base = library.joinpath(*node.module.split(".")[1:])
                places = [base, *(base / alias.name for alias in node.names)]
                found |= {place.with_suffix(".py") for place in places}
    return {path for path in found if path.exists() and path != library / "__init__.py"}


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


def test_kept_trials_are_not_run_again_unless_the_code_changed(module, tmp_path, monkeypatch):
    trials, provenance = module("trials"), module("provenance")

    class Counting:
        key, runs = "toy-problem", 0

        def solve(self, method, seed):
            type(self).runs += 1
            more = {"means": np.ones((5, 3))}
            return trials.Trial(np.eye(4)[None] * seed, np.zeros((2, 1, 4, 4)), 1.5, more)

    job = trials.Job(Counting(), "ICP", 2)
    first = trials.Store(tmp_path).get(job)
    again = trials.Store(tmp_path).get(job)
    assert Counting.runs == 1
    np.testing.assert_array_equal(again.poses, first.poses)
    assert (again.seconds, dict(again.more)) == (1.5, {})
    full = trials.Store(tmp_path).get(trials.Job(Counting(), "ICP", 2, model=True))
    assert full.more["means"].shape == (5, 3)
    monkeypatch.setattr(provenance, "of_method", lambda method: "of other code")
    assert trials.Store(tmp_path).cost(job) is None
    trials.Store(tmp_path).get(job)
    assert Counting.runs == 3


def test_a_run_goes_on_from_what_is_kept(module, tmp_path, capsys):
    trials, runner, problems = module("trials"), module("runner"), module("problems")
    given = problems.Views("toy", "bunny", (0.0, 10.0), 20.0, 0.0)
    jobs = [trials.Job(given, "ICP", seed) for seed in (1, 0)]
    store = trials.Store(tmp_path)
    assert runner.run(jobs, store, seconds=0.0) == jobs[::-1]  # nothing is started
    store.make(jobs[1])
    assert runner.run(jobs, store, workers=1) == []
    assert "2 trials, 1 of them kept" in capsys.readouterr().out
    inside = store.get(jobs[0])  # of another process
    np.testing.assert_array_equal(inside.poses, jobs[0].solve().poses)
    assert runner.run(jobs, store) == []


@pytest.mark.parametrize(("text", "seeds"), [("3", (3,)), ("0-2,7", (0, 1, 2, 7))])
def test_seeds_of_the_command_line(module, text, seeds):
    assert module("__main__").seeds(text) == seeds
