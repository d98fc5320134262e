# SPDX-License-Identifier: MIT
"""Coordinate reference systems pass through: from files or the user, into results and exports."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coframe
from coframe import InputError
from coframe.cli.commands import app
from coframe.io import crs, e57, las
from coframe.io.scan import Scan
from coframe.result.export import export

WKT = 'LOCAL_CS["site grid",UNIT["metre",1]]'
QUICK = coframe.Options(components=40, points=300, start="identity")


def bumpy(seed: int) -> np.ndarray:
    x, y = np.random.default_rng(seed).uniform(0, 4, (2, 500))
    return np.stack([x + 512000, y + 5403000, np.sin(2 * x) * np.cos(1.7 * y)], 1)


def test_las_and_e57_name_the_reference_system_that_was_written(tmp_path: Path) -> None:
    pytest.importorskip("laspy")
    pytest.importorskip("pye57")
    las.write_scan(tmp_path / "a.las", Scan(bumpy(0)), WKT)
    e57.write_scans(tmp_path / "a.e57", [Scan(bumpy(0))], WKT)
    las.write_scan(tmp_path / "none.las", Scan(bumpy(0)))
    assert crs.read(tmp_path / "a.las") == WKT
    assert crs.read(tmp_path / "a.e57") == WKT
    assert crs.read(tmp_path / "none.las") == ""
    assert crs.read(tmp_path / "missing.las") == ""
    assert crs.common([tmp_path / "a.las", tmp_path / "a.e57"]) == WKT
    assert crs.common([tmp_path / "a.las", tmp_path / "none.las"]) == ""


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ([(1024, 0, 1, 1), (3072, 0, 1, 25832)], "EPSG:25832"),
        ([(2048, 0, 1, 4326)], "EPSG:4326"),
        ([(3072, 0, 1, 32767)], ""),
        ([], ""),
    ],
)
def test_keys_of_geotiff(keys: list[tuple[int, ...]], name: str, tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    shorts = [1, 1, 0, len(keys), *(value for key in keys for value in key)]
    header = laspy.LasHeader(point_format=0, version="1.2")
    header.vlrs.append(
        laspy.VLR("LASF_Projection", 34735, record_data=struct.pack(f"<{len(shorts)}H", *shorts))
    )
    laspy.LasData(header).write(tmp_path / "a.las")
    assert crs.read(tmp_path / "a.las") == name


def test_it_goes_from_files_to_the_result_and_its_exports(tmp_path: Path) -> None:
    pytest.importorskip("laspy")
    pytest.importorskip("pye57")
    paths = [tmp_path / f"{j}.las" for j in range(2)]
    for j, path in enumerate(paths):
        las.write_scan(path, Scan(bumpy(j)), WKT)
    result = coframe.register(paths, options=QUICK)
    assert result.crs == WKT
    result.save(tmp_path / "out")
    again = coframe.load(tmp_path / "out")
    assert again.crs == WKT
    assert json.loads((tmp_path / "out/poses.json").read_text())["crs"] == WKT
    for form in ("las", "e57"):
        (written,) = export(again, form, tmp_path / "out", tmp_path / f"all.{form}")
        assert crs.read(written) == WKT
    assert coframe.register(paths, options=QUICK, crs="EPSG:25832").crs == "EPSG:25832"
    assert result.relative_to(0).crs == ""


def test_names_that_are_no_reference_system_are_refused() -> None:
    with pytest.raises(InputError, match="found nothing"):
        crs.check("  ")
    pytest.importorskip("pyproj")
    with pytest.raises(InputError, match="expected a name such as EPSG:25832"):
        crs.check("EPSG:99999999")
    assert crs.as_wkt("EPSG:25832").startswith("PROJCS")
    assert crs.as_wkt("no such system") == ""


UTM = (
    'PROJCS["UTM {zone}N",GEOGCS["ETRS89",DATUM["x",SPHEROID["GRS 1980",6378137,298.257]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["latitude_of_origin",0],PARAMETER["central_meridian",9],PARAMETER["scale_factor",'
    '0.9996],PARAMETER["false_easting",500000],PARAMETER["false_northing",0],UNIT["metre",1]]'
)


def test_files_with_different_systems_are_warned_of(tmp_path: Path) -> None:
    pytest.importorskip("laspy")
    files = [tmp_path / f"{name}.las" for name in "abc"]
    for seed, (file, zone) in enumerate(zip(files, (32, 32, 33), strict=True)):
        las.write_scan(file, Scan(bumpy(seed)), UTM.format(zone=zone))
    warned = coframe.register(files, options=QUICK)
    assert warned.crs == ""
    (said,) = [text for text in warned.warnings if "coordinate reference systems" in text]
    assert f"{files[0]} UTM 32N, {files[2]} UTM 33N;" in said
    silent = coframe.register(files[:2], options=QUICK)
    assert not [text for text in silent.warnings if "reference systems" in text]
    chosen = coframe.register(files, options=QUICK, crs=UTM.format(zone=32))
    assert not [text for text in chosen.warnings if "reference systems" in text]


def test_a_unit_that_is_not_that_of_the_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("laspy")
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        las.write_scan(tmp_path / f"{name}.las", Scan(bumpy(seed)), UTM.format(zone=32))
    arguments = ["register", "a.las", "b.las", "-o", "out", "--unit", "mm"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert (
        "--unit: expected m, the unit of the coordinate reference system UTM 32N of a.las" in said
    )


@pytest.mark.parametrize(
    ("wkt", "metres"),
    [
        (UTM.format(zone=32), 1.0),
        (UTM.format(zone=32).replace('"metre",1]', '"US survey foot",0.3048006]'), 0.3048006),
        ('COMPD_CS["x",' + UTM.format(zone=1) + ',VERT_CS["h",UNIT["foot",0.3048]]]', 1.0),
        ('GEOGCS["WGS 84",UNIT["degree",0.0174532925199433]]', None),
        ("a name of my own", None),
    ],
)
def test_the_unit_of_a_projected_system(wkt: str, metres: float | None) -> None:
    assert crs.metres(wkt) == metres
