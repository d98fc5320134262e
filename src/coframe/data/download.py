# SPDX-License-Identifier: MIT
"""Archives from the web: resumed where a connection broke, checked against what came the first
time, unpacked into one folder.

The publishers give no checksums. So the SHA-256 of each file is written down when it first arrives
whole, and every later download must have the same.
"""

import gzip
import json
import os
import shutil
import tarfile
import zipfile
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any

from coframe.errors import InputError, one_line, optional
from coframe.io.files import atomic

# [limit] Connections that are tried.
TRIES = 3
# [limit, s] Time without a byte after which a connection is given up.
TIMEOUT = 30.0
# [size, bytes] What has come of a block is lost with the connection.
BLOCK = 1 << 14


def fetch(url: str, folder: Path, *, record: Path) -> Path:
    """Download a file, check it, unpack it into the folder, and return the folder.

    `record` is the JSON of checksums.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    archive = download_file(url, folder, record=record)
    try:
        unpack(archive, folder)
    finally:
        archive.unlink()
    return folder


def download_file(url: str, folder: Path, *, record: Path) -> Path:
    """The file of a URL in the folder, whole and as it was the first time."""
    pooch = optional("pooch", "datasets", "datasets")
    # Pooch would ask the user to note down the checksum, which is done below.
    pooch.get_logger().setLevel("WARNING")
    name = PurePosixPath(url).name
    known = json.loads(record.read_text()) if record.exists() else {}
    try:
        path = Path(pooch.retrieve(url, known.get(url), name, folder, downloader=_download))
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise InputError(
            f"{url}: expected the file whose {known[url]} was recorded, found another; if the"
            f" publisher has changed it, remove its line from {record}"
        ) from None
    if url not in known:
        known[url] = f"sha256:{pooch.file_hash(str(path))}"
        with atomic(record) as temporary:
            temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return path


def _download(url: str, output: str, _: Any) -> None:
    """Pooch's downloader.

    What has come of a file is kept beside it, and asked for no second time, even by a later run.
    """
    requests = optional("requests", "datasets", "datasets")
    part = Path(output).parent / f"{PurePosixPath(url).name}.part"
    tag = part.with_suffix(".tag")  # which version of the file the part belongs to
    for attempt in range(1, TRIES + 1):
        try:
            _receive(requests, url, part, tag)
            break
        except requests.HTTPError as error:
            status = error.response.status_code
            raise InputError(
                f"{url}: expected a file, found HTTP status {status} {HTTPStatus(status).phrase};"
                " try again later, or get it from the publisher's page"
            ) from None
        except (requests.RequestException, EOFError) as error:
            if attempt == TRIES:
                have = part.stat().st_size if part.exists() else 0
                raise InputError(
                    f"{url}: expected the whole file, found an end after {have} bytes"
                    f" ({one_line(error)}); the part is kept, try again"
                ) from None
    tag.unlink(missing_ok=True)
    os.replace(part, output)


def _receive(requests: Any, url: str, part: Path, tag: Path) -> None:
    """One connection: what is missing of the part, or all of the file where the server has another
    version by now.
    """
    have = part.stat().st_size if part.exists() and tag.exists() else 0
    headers = {"Range": f"bytes={have}-", "If-Range": tag.read_text()} if have else {}
    headers["Accept-Encoding"] = "identity"  # the bytes of the file, not of a stream around it
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if have and answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
            raise EOFError("the part was longer than the file")
        answer.raise_for_status()
        resumes = answer.status_code == HTTPStatus.PARTIAL_CONTENT
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if version and not version.startswith("W/"):
            tag.write_text(version)
        else:
            tag.unlink(missing_ok=True)
        with part.open("ab" if resumes else "wb") as file:
            for block in answer.iter_content(BLOCK):
                file.write(block)
        length = answer.headers.get("Content-Length")
        whole = None if length is None else int(length) + (have if resumes else 0)
        if whole is not None and part.stat().st_size != whole:
            raise EOFError(f"{whole} bytes were announced")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar, zip or gzip file.

    A member that would leave the folder, or that is a link or device, is refused by name.
    """
    try:
        if archive.name.endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(archive) as tar:
                for member in tar.getmembers():
                    if not (member.isfile() or member.isdir()):
                        raise InputError(
                            f"{archive.name}: expected files and folders, found {member.name!r}, a"
                            " link or device"
                        )
                    _check_inside(archive, member.name, folder)
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
                tar.extractall(folder)
        elif archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as pack:
                for name in pack.namelist():
                    _check_inside(archive, name, folder)
                pack.extractall(folder)
        elif archive.suffix == ".gz":
            with (
                gzip.open(archive) as source,
                atomic(folder / archive.stem) as temporary,
                temporary.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
        else:
            shutil.copy(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, gzip.BadGzipFile) as error:
        raise InputError(
            f"{archive.name}: expected an archive, found a damaged one ({one_line(error)}); try"
            " again"
        ) from None


def _check_inside(archive: Path, name: str, folder: Path) -> None:
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise InputError(
            f"{archive.name}: expected files that stay in their folder, found {name!r}"
        )
