"""Python environments for suites: one a suite, made again when its requirements change."""
import shutil
import subprocess
import sys


def prepare(suite):
    """Fills the suite's tools with `venv`, which has what its requirements.txt names. True if it was made anew."""
    wanted = suite.folder / "requirements.txt"
    noted, venv = suite.tools / "requirements.txt", suite.tools / "venv"
    if noted.exists() and noted.read_text() == wanted.read_text():
        return False
    shutil.rmtree(suite.tools, ignore_errors=True)
    suite.tools.mkdir(parents=True)
    print(f"{suite.name}: getting {wanted.name}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip(suite, "install", "-r", wanted)
    shutil.copy(wanted, noted)
    return True


def pip(suite, *arguments):
    subprocess.run([suite.tools / "venv" / "bin" / "pip", "-q", *arguments], check=True)


def python(suite):
    """The interpreter of the suite's environment."""
    return suite.tools / "venv" / "bin" / "python"
