"""Results as data: every round of a bench with what it ran on. benches/table makes the README's tables of them."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def folder():
    return pathlib.Path(os.environ.get("RESULTS") or ROOT / "benches" / "results")


def report(bench, settings, rows):
    """Writes the rows of a bench; a fast run only says that it worked."""
    if settings.fast:
        print(f"{bench}: works. FAST=1 measures nothing worth keeping; no results were written.")
        return
    document = {
        "bench": bench,
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "rows": rows,
    }
    folder().mkdir(parents=True, exist_ok=True)
    path = folder() / f"{bench}.json"
    path.write_text(json.dumps(rounded(document), indent=1) + "\n")
    print(f"{bench}: {path}; benches/table puts it into the README")


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    """What the figures depend on."""
    models = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    disk = subprocess.run(["stat", "-f", "-c", "%T", ROOT], capture_output=True, text=True)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True)
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30)),
        "kernel": platform.release(),
        "file_system": disk.stdout.strip(),
        "java": java.stderr.splitlines()[0] if java.stderr else "",
        "load_1_min": os.getloadavg()[0],
    }


def rounded(value):
    """Four digits behind the point are more than any of this is good for."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value
