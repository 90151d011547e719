"""The console script, and `python -m chronicle_cli`: the command, imported without looking for garbage.

An interrupt meanwhile ends the process as it ends any other, without Python's traceback.
"""

import signal

from chronicle_cli import garbage


def main() -> None:
    garbage.put_off()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from chronicle_cli.main import main as run

    run()


if __name__ == "__main__":
    main()
