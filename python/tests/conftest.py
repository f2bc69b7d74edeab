"""What all tests share: one that is skipped is counted with those of the crates, in the file that REFAULT_SKIPS names."""

import os


def pytest_runtest_logreport(report):
    log = os.environ.get("REFAULT_SKIPS")
    if report.skipped and log:
        _, _, why = report.longrepr
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}: {why.removeprefix('Skipped: ')}\n")
