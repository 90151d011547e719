"""chronicle's real command side by side with its peers, in one interleaved run; see run.py.

It lives beside the tests and borrows their private broker, so their folder goes onto the path here.
"""

import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent

if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))
