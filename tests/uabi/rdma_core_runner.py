"""Runs rdma-core's own Python tests and prints a line of JSON for each: name, outcome, reason.

`rdma_core_runner.py DIRECTORY`, with the system's Python, whose package pyverbs is; DIRECTORY holds
the package `tests`. With LEAVES_GARBAGE in the environment nothing is collected: pyverbs of
rdma-core 50 and 56 crashes where what a failed test left is destroyed in an order that it did not
expect.
"""

import gc
import json
import os
import sys
import unittest


class Result(unittest.TestResult):
    """Prints outcomes as they come."""

    def _say(self, test, outcome, reason=""):
        print(json.dumps([test.id(), outcome, reason]), flush=True)

    def addSuccess(self, test):  # noqa: N802
        super().addSuccess(test)
        self._say(test, "passed")

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self._say(test, "skipped", reason)

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self._say(test, "failed", self.failures[-1][1])

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self._say(test, "error", self.errors[-1][1])


def main():
    """Loads the package as rdma-core's run_tests.py does."""
    top = sys.argv.pop()
    sys.path[:0] = [top, os.path.join(top, "tests")]
    import tests
    from args_parser import parser

    parser.parse_args()
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromModule(module) for module in tests.__test_modules__
    )
    collects = "LEAVES_GARBAGE" not in os.environ
    if not collects:
        gc.disable()
    suite.run(Result())
    if not collects:
        os._exit(0)


if __name__ == "__main__":
    main()
