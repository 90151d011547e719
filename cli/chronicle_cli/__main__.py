"""The console script, and `python -m chronicle_cli`: the command, imported without looking for garbage.

Nothing that an import creates is garbage, and there is so much of it that looking through it again and again
delays the first message. main.py turns the collector on again when it has a command.
"""

import gc


def main() -> None:
    gc.disable()
    from chronicle_cli.main import main as run

    run()


if __name__ == "__main__":
    main()
