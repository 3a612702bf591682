"""The program that stands where an engine will be until its record is durable.

Run as ``python -I -S gate.py <read fd> <write fd>``. It waits for one message from the launcher: a JSON object with
``argv`` and ``env``, ended by end of file or not at all. When the launcher dies before the message is complete, the
gate ends (exit code 125) and no engine was ever started. Otherwise it becomes the engine. If that fails, the system's
error number goes back through the other pipe, which a success closes without a word (close-on-exec).

It imports nothing of this project: it must start fast and in any environment.
"""

import json
import os
import sys


def main() -> None:
    """Wait for the message, then become the engine."""
    source, report = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(report, False)
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(source, 65536)
        if not chunk:
            os._exit(125)
        data += chunk
    os.close(source)
    message = json.loads(data)
    try:
        os.execve(message["argv"][0], message["argv"], message["env"])  # noqa: S606  # this is what the gate is for
    except OSError as error:
        os.write(report, str(error.errno).encode())
        os._exit(126)


main()
