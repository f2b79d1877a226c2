"""Java for suites: jars by Maven, classes by javac, both kept beside the other tools and made again when their source changes."""
import hashlib
import subprocess

from suite import HERE

NEEDS = {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven"}


def copy(pom, folder):
    """Copies the jars that a pom.xml names, and theirs, into a folder."""
    subprocess.run(["mvn", "-q", "-B", "-Dstyle.color=never", "-f", pom, "dependency:copy-dependencies",
                    f"-DoutputDirectory={folder}", "-DincludeScope=runtime"], check=True)


def prepare(suite):
    """Fills the suite's tools with `lib` (the jars of its pom.xml) and `classes` (its folder `java`, and what it borrows, if
    there is any)."""
    pom, sources = suite.folder / "pom.xml", sorted((suite.folder / "java").glob("*.java"))
    sources += [HERE / borrowed for borrowed in suite.borrows]
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in [pom, *sources])).hexdigest()
    noted = suite.tools / "stamp"
    if noted.exists() and noted.read_text() == stamp:
        return
    lib, classes = suite.tools / "lib", suite.tools / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    print(f"{suite.name}: getting jars and compiling", flush=True)
    copy(pom, lib)
    if sources:
        subprocess.run(["javac", "--release", "17", "-nowarn", "-Xlint:-options", "-cp", f"{lib}/*", "-d", classes, *sources],
                       check=True)
    noted.write_text(stamp)


def command(suite, main, *arguments, flags=("-Xmx512m",)):
    """The java command for a class of the suite."""
    path = f"{suite.tools / 'classes'}:{suite.tools / 'lib'}/*"
    return ["java", *flags, "-cp", path, main, *arguments]
