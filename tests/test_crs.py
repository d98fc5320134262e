# SPDX-License-Identifier: MIT
"""Coordinate reference systems pass through: from files or the user, into results and exports."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import InputError
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
