# SPDX-License-Identifier: MIT
"""Of a failed test's output, the lines that say why: tests/run and tests/vm/run show them."""
import re

PASSED = re.compile(r"^\s*(?:#\s+)*ok\b")
END = 20  # lines at the end that are shown as they are: where a program died says what it was doing


def excerpt(lines, most):
    """At most @most lines: all where there are no more, else the end, and before it what did not pass.

    Where that is still too much, its beginning and its end stay, as the first failure often explains the others.
    """
    if len(lines) <= most:
        return list(lines)
    end = min(END, most // 2)
    rest, last = [line for line in lines[:-end] if not PASSED.match(line)], lines[-end:]
    room = most - end
    if len(rest) > room:
        half = room // 2
        rest = [*rest[:half], "[...]", *rest[len(rest) - (room - half - 1):]]
    return [*rest, *last]
