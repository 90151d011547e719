"""The console script, and `python -m chronicle_cli`: the command, imported without looking for garbage.

Nothing that an import creates is garbage, and there is so much of it that looking through it again and again
delays the first message. main.py turns the collector on again when it has a command.
An interrupt meanwhile ends the process as it ends any other, without Python's traceback.
"""

import gc
import signal


def main() -> None:
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from chronicle_cli.main import main as run

    run()


if __name__ == "__main__":
    main()
