# SPDX-License-Identifier: MIT
"""README and docs: links lead somewhere, commands parse, Python snippets run, the site builds."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer.main

import coframe
from coframe import geometry
from coframe.cli.commands import app
from coframe.data import simulate
from coframe.io import clouds as cloud_files
from coframe.io import e57, ply
from coframe.io.scan import Scan

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_somewhere(page: str) -> None:
    prose = re.sub(r"```.*?```|^    .*$|`[^`]*`", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    linked = set(re.findall(r"\]\((\w+\.md)\)", TEXTS["docs/index.md"]))
    assert {Path(page).name for page in TEXTS if page.startswith("docs/")} - {"index.md"} == linked


def test_every_public_name_is_in_the_api_reference() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in ROOT.glob("docs/api/*.md"))
    shown = set(re.findall(r"(?:^::: |`)coframe\.([\w.]+)", pages, re.MULTILINE))
    shown |= {name.split(".")[0] for name in shown}
    assert set(coframe.__all__) - shown == set()


@pytest.mark.slow
def test_the_site_builds_strictly_and_offline(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="pip install -e '.[docs]'")
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pages = "".join(page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html"))
    assert re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"?https?://[^>]+>", pages) == []
    for recipe in (ROOT / "src" / "coframe").glob("*/recipe.py"):
        assert f"coframe.{recipe.parent.name}.recipe" in pages


def module_of(name: str) -> ModuleType:
    """The module of that name, in whichever folder it is."""
    folder = Path(coframe.__file__).parent
    homes = [*folder.glob(f"{name}.py"), *folder.glob(f"*/{name}.py"), *folder.glob(f"{name}/")]
    assert len(homes) == 1, f"{name}: {homes}"
    parts = homes[0].relative_to(folder.parent).with_suffix("").parts
    return import_module(".".join(parts))


def test_functions_that_the_method_speaks_of_exist() -> None:
    names = set(re.findall(r"`([a-z_]+\.[A-Za-z_.]+)`", TEXTS["docs/method.md"]))
    names = {name for name in names if not name.endswith((".md", ".py"))}
    assert {
        "estep.posteriors",
        "mstep.virtual_points",
        "joint.softened",
        "paper.integrate",
    } <= names
    missing = []
    for name in names:
        module, _, rest = name.partition(".")
        try:
            attrgetter(rest)(module_of(module))
        except AttributeError:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/method.md", "docs/start.md"])
def test_files_that_a_page_speaks_of_exist(page: str) -> None:
    files = re.findall(r"`((?:\w+/)*\w+\.py)`", TEXTS[page])
    homes = [ROOT / "src" / "coframe", ROOT]
    # Each stage has a recipe.py.
    lost = [f for f in files if f != "recipe.py" and not any((h / f).exists() for h in homes)]
    assert lost == []


def test_tests_that_the_reliability_page_names_exist() -> None:
    page = TEXTS["docs/reliability.md"]
    files = set(re.findall(r"\b(test_\w+\.py)", page))
    names = set(re.findall(r"\b(test_\w+)(?!\w*\.py)", page)) - {f[:-3] for f in files}
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    assert {file for file in files if not (ROOT / "tests" / file).exists()} == set()
    assert {name for name in names if f"def {name}" not in code} == set()


def command_lines() -> list[tuple[str, str]]:
    """Commands in blocks, and in the text where they have options, up to a comment or a pipe."""
    found = []
    for page, text in TEXTS.items():
        blocks = "\n".join(
            [
                *re.findall(r"```\n(.*?)```", text, re.DOTALL),
                *re.findall(r"^    (.*)$", text, re.MULTILINE),
            ]
        )
        lines = re.findall(r"^(?:\$ )?(coframe [a-z].*)$", blocks, re.MULTILINE)
        lines += [
            span
            for span in re.findall(r"`(coframe [a-z][^`]*)`", text)
            if " -" in span and "..." not in span
        ]
        found += [(page, re.split(r"\s+#|\s+\||\n", line)[0]) for line in lines]
    return found


def test_reasons_that_are_explained_are_given_by_the_code() -> None:
    """Each reason in the table of weak.md is part of a message of the library."""
    rows = re.findall(r'^\| (".*?") \|', (ROOT / "docs/weak.md").read_text(), re.MULTILINE)
    reasons = [reason for row in rows for reason in re.findall(r'"(.*?)"', row)]
    assert len(reasons) >= 9
    code = "".join(path.read_text() for path in sorted((ROOT / "src/coframe").rglob("*.py")))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)  # strings over several lines
    assert [reason for reason in reasons if reason not in joined] == []


def test_every_command_line_parses() -> None:
    group = typer.main.get_command(app)
    lines = command_lines()
    assert len(lines) > 20
    wrong = []
    for page, line in lines:
        words = shlex.split(line)[1:]
        try:
            context = group.make_context("coframe", words[:0], resilient_parsing=True)
            _, command, rest = group.resolve_command(context, words)  # type: ignore[attr-defined]
            command.make_context(words[0], list(rest), parent=context)
        except SystemExit:
            continue  # --help and --version
        except Exception as error:
            wrong.append(f"{page}: {line}: {error}")
    assert wrong == []


# Each snippet with names of its own, after what it may speak of.
DRIVER = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np
import coframe
from coframe import geometry
data = np.load("data.npz")
given = {"clouds": [data[f"cloud{j}"] for j in range(4)], "start": data["start"]}
given |= {"pose": np.eye(4), "covariance": np.eye(6)}
given |= {"start_poses": data["start"], "poses_of_another_program": data["truth"]}
given |= {"cloud": given["clouds"][3], "rng": np.random.default_rng(0), "coframe": coframe}
given["np"] = np
given["known"] = np.random.default_rng(2).normal(size=(5, 3))
given["seen"] = [
    geometry.transform(geometry.inverse(T), given["known"]) for T in data["truth"]
]
given["point_weights"] = [np.ones(len(cloud)) for cloud in given["clouds"]]
for page, snippet in json.load(sys.stdin):
    try:
        exec(compile(snippet, page, "exec"), dict(given))
    except Exception as error:
        sys.exit(f"{page}: {type(error).__name__}: {error} in\\n{snippet}")
"""


def test_python_snippets_run(tmp_path: Path) -> None:
    pytest.importorskip("laspy")
    pytest.importorskip("pye57")
    scene = simulate.scene(4, 250, degrees=50.0, noise_db=50.0, rng=np.random.default_rng(1))
    clouds = {f"cloud{j}": cloud for j, cloud in enumerate(scene.clouds)}
    np.savez(tmp_path / "data.npz", start=geometry.identity(4, 3), truth=scene.poses, **clouds)
    (tmp_path / "scans").mkdir()
    for j, cloud in enumerate(scene.clouds):
        ply.write(tmp_path / "scans" / f"{j}.ply", cloud)
    cloud_files.write(tmp_path / "a.las", Scan(scene.clouds[0]))
    cloud_files.write(tmp_path / "huge.ply", Scan(scene.clouds[0]))
    e57.write_scans(
        tmp_path / "site.e57", [Scan(cloud, name=str(j)) for j, cloud in enumerate(scene.clouds)]
    )
    snippets = [
        (page, part)
        for page, text in TEXTS.items()
        for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ]
    # those need a cluster
    snippets = [(page, part) for page, part in snippets if "distributed." not in part]
    assert len(snippets) >= 6
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        input=json.dumps(snippets),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
