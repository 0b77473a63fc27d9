"""Kafka's jars, resolved once by Maven into a user cache; afterwards a broker starts offline."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import LocalKafkaError

KAFKA_VERSION = "4.2.1"
# Kafka logs through slf4j and its artifact brings no binding: without this one a failing broker says nothing.
LOG_BINDING_VERSION = "2.25.4"
JAVA_VERSION_MIN = 17

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rewindq</groupId><artifactId>kafka-local</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG_BINDING_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_dir() -> Path:
    """Where the jars of this Kafka version are kept: `$XDG_CACHE_HOME/rewindq/kafka/<version>`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "rewindq" / "kafka" / KAFKA_VERSION


def java() -> str:
    """The path of a Java 17 or newer (`$JAVA_HOME/bin/java`, else on PATH). Raises LocalKafkaError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise LocalKafkaError(f"no java: set JAVA_HOME or put Java {JAVA_VERSION_MIN} or newer on PATH")
    version = _java_version(found)
    if version < JAVA_VERSION_MIN:
        raise LocalKafkaError(f"{found} is Java {version}; Kafka {KAFKA_VERSION} needs {JAVA_VERSION_MIN} or newer")
    return found


def _java_version(path: str) -> int:
    # The first line reads `openjdk version "17.0.15" 2025-04-15`; old ones say "1.8.0_402", which gives 1.
    text = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    quoted = text.split('"')
    try:
        return int(quoted[1].split(".")[0].split("-")[0])
    except (IndexError, ValueError):
        raise LocalKafkaError(f"{path} does not tell its version: {text.strip()[:200]!r}") from None


def resolve() -> Path:
    """The folder that holds the jars, resolved by Maven when they are not cached. Raises LocalKafkaError."""
    ready = cache_dir()
    if any(ready.glob("kafka_*.jar")):
        return ready
    ready.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ready.parent, prefix="resolving-") as work:
        jars = _copy_dependencies(Path(work))
        try:
            # Whole or not at all: a resolution that was cut short never looks like a finished one.
            jars.rename(ready)
        except OSError:
            if not any(ready.glob("kafka_*.jar")):
                raise
    return ready


def _copy_dependencies(work: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalKafkaError(
            f"no mvn: the jars of Kafka {KAFKA_VERSION} are not in {cache_dir()} yet, and Maven "
            "resolves them: install it, or copy the jars there"
        )
    (work / "pom.xml").write_text(_POM)
    jars = work / "jars"
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    result = subprocess.run(
        [*command, f"-DoutputDirectory={jars}"], cwd=work, capture_output=True, text=True, check=False
    )
    if result.returncode or not any(jars.glob("kafka_*.jar")):
        said = (result.stdout + result.stderr).strip()[-800:]
        raise LocalKafkaError(f"Maven could not resolve Kafka {KAFKA_VERSION} (is its repository reachable?): {said}")
    return jars
