"""What the server of `forked.py` imports last: digits are read once, inherited garbage is not collected."""

import gc
import signal

import torch

from calmoe.data import load_dataset

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run with `&`
torch.set_num_threads(1)
load_dataset("digits")
gc.freeze()
