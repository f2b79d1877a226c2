"""Apache Kafka 4.4.0 beside Floe, for suites that need both: the broker that the benches measure."""
import sys

import jars
from suite import ROOT


def kafka(folder, properties=()):
    """A broker on a folder of its own, not started; its jars come by Maven, once."""
    sys.path.insert(0, str(ROOT / "benches"))
    import servers

    if not servers.JARS.exists():
        print("getting Apache Kafka", flush=True)
        jars.copy(ROOT / "benches" / "kafka" / "pom.xml", servers.JARS)
    return servers.Kafka(folder, properties)
