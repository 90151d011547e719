"""What tests about files of other users share."""

from __future__ import annotations

import os

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
