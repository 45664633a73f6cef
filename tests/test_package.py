"""The package: a wheel that works when it is installed, and imports that work on any system."""

import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import td7

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "td7"
DATA = {
    path.relative_to(SOURCE.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in SOURCE.rglob("*")
    if path.is_file() and path.suffix not in (".py", ".pyc")
}


class Package(NamedTuple):
    sdist: Path
    wheel: Path
    folder: Path  # of the environment that the wheel is installed into

    def program(self, name: str) -> str:
        return str(self.folder / "env" / "bin" / name)

    def run(self, *command: str) -> str:
        """Run a command outside the clone, without anything that points into it."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": self.program(""), "HOME": str(self.folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The wheel, built from the sdist and installed beside the packages of this environment."""
    folder = tmp_path_factory.mktemp("package")

    def run(*words: str | Path) -> None:
        command = [sys.executable, "-m", *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    run("hatchling", "build", "-t", "sdist", "-d", folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    offline = "--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"
    run("pip", "wheel", *offline, "--no-build-isolation", "-w", folder, unpacked)
    (wheel,) = folder.glob("*.whl")

    venv.create(folder / "env")
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    # A path in a .pth file comes after the environment's own packages, and its own .pth files,
    # such as that of an editable td7, are not read.
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "others.pth").write_text("\n".join(sorted(others)))
    python = folder / "env" / "bin" / "python"
    run("pip", "--python", python, "install", *offline, wheel)
    return Package(sdist, wheel, folder)


def names(archive: Path) -> set[str]:
    """Return the files in a wheel, or in the folder of an sdist."""
    if archive.suffix == ".whl":
        return set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def test_the_package_contains_the_program_and_nothing_else(package: Package) -> None:
    code = {p.relative_to(SOURCE.parent).as_posix() for p in SOURCE.rglob("*.py")} | set(DATA)
    info = f"td7-{td7.__version__}.dist-info"
    wheel = names(package.wheel)
    assert {name for name in wheel if not name.startswith(f"{info}/")} == code
    assert f"{info}/licenses/LICENSE" in wheel
    sdist = names(package.sdist)
    assert {name.removeprefix("src/") for name in sdist if name.startswith("src/")} == code
    assert {name for name in sdist if not name.startswith("src/")} == {
        *("PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore", "constraints.txt"),
        *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"),
    }
    assert package.sdist.stat().st_size < 2**20
    assert package.wheel.stat().st_size < 2**20


def test_commands_of_the_installed_package(package: Package) -> None:
    version = package.run(package.program("td7"), "--version")
    assert version.startswith(f"td7 {td7.__version__}\n")
    assert package.run(package.program("python"), "-m", "td7", "--version") == version
    studies = package.run(package.program("td7"), "list", "studies")
    assert all(name in studies for name in ("online", "design", "ablation"))


def test_the_installed_package_stands_alone(package: Package) -> None:
    """It has every data file, and no module comes from the clone."""
    script = """
import hashlib, importlib, json, pkgutil, sys
from importlib.resources import files
import td7
from td7.datasets.download import DATASETS
from td7.reports.paper import minutes, percent_losses, printed
from td7.studies.plan import usual_rates

assert DATASETS and minutes() and percent_losses() and printed("online", 300_000)
assert usual_rates("cpu")
absent = {"td7.__main__", "td7.networks.triton_kernels"}  # a program; needs a GPU's packages
for module in pkgutil.walk_packages(td7.__path__, "td7."):
    if module.name not in absent:
        importlib.import_module(module.name)
places = [str(getattr(module, "__file__", None)) for module in list(sys.modules.values())]
digests = {}
for name in json.loads(sys.argv[1]):
    content = files("td7").joinpath(name.removeprefix("td7/")).read_bytes()
    digests[name] = hashlib.sha256(content).hexdigest()
print(json.dumps([td7.__file__, sys.path, places, digests]))
"""
    words = package.program("python"), "-W", "error::ResourceWarning", "-c", script
    file, path, places, digests = json.loads(package.run(*words, json.dumps(sorted(DATA))))
    assert Path(file).is_relative_to(package.folder)
    assert digests == DATA
    ours = ROOT / "src", ROOT / "tests"
    assert [p for p in (*path, *places) if any(Path(p).is_relative_to(own) for own in ours)] == []


def test_importing_needs_no_posix() -> None:
    """As on Windows: a fresh process imports every module without what only POSIX has."""
    script = """
import importlib, os, select, signal, sys, warnings

POSIX = {"fcntl", "grp", "posix_ipc", "pty", "pwd", "readline", "resource", "syslog", "termios"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in POSIX:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in POSIX:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
warnings.filterwarnings("ignore", "only soft file lock is available")  # filelock's, of fcntl
import gymnasium, matplotlib.pyplot, pandas, torch  # which know that this is no Windows
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIG_BLOCK", "pthread_sigmask"):
    delattr(signal, name)
for name in ("O_NOFOLLOW", "O_NONBLOCK", "fork", "register_at_fork", "getuid", "killpg",
             "sched_getaffinity", "sched_setaffinity", "sched_yield", "setsid"):
    delattr(os, name)
del select.poll
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    modules = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
    ]
    modules.remove("td7.__main__")
    modules.remove("td7.networks.triton_kernels")  # needs Triton, which Windows lacks
    command = [sys.executable, "-c", script, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_texts_do_not_take_td7_for_a_package_of_an_index() -> None:
    """Extras are named as of a clone, `pip install -e '.[onnx]'`, or by their packages."""
    texts = [p for folder in ("src", "docs", "results") for p in (ROOT / folder).rglob("*")]
    texts += [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *(ROOT / ".github").rglob("*")]
    readable = [p for p in texts if p.suffix in (".py", ".md", ".ipynb", ".yml", ".cff")]
    assert len(readable) > 100
    pattern = re.compile(r"pip install [^\n`]*\btd7(\[|\b(?![-./_]))")
    assert [str(p) for p in readable if pattern.search(p.read_text())] == []


def test_the_versions_agree() -> None:
    """The changelog's newest one, the citation's and the program's."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (\S+) – (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    assert headings[0][0] == td7.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f'\nversion: "{td7.__version__}"\n' in citation
    assert f'\ndate-released: "{headings[0][1]}"\n' in citation


def test_constraints_pin_what_builds_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = (ROOT / "constraints.txt").read_text()
    for requirement in project["build-system"]["requires"]:
        assert requirement in project["project"]["optional-dependencies"]["dev"]
        assert re.search(rf"^{re.split('[><=]', requirement)[0]}==", pins, re.MULTILINE)
