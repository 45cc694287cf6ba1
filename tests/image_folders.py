"""Tiny datasets in the layout DIR/domain/class/image, for tests."""

import numpy as np
from PIL import Image

from calmoe.data import pacs

DOMAINS = ("clipart", "photo", "sketch")
CLASSES = ("cat", "dog", "owl")


def write_images(root, domains=DOMAINS, classes=CLASSES, count=20, side=36):
    """`count` images a domain and class: noise around a grey that tells both; every other one is a JPEG."""
    generator = np.random.default_rng(0)
    for d, domain in enumerate(domains):
        for c, label in enumerate(classes):
            folder = root / domain / label
            folder.mkdir(parents=True)
            for i in range(count):
                grey = 20 + 25 * c + 10 * d
                pixels = generator.integers(grey, grey + 30, (side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:03}.{'jpg' if i % 2 else 'png'}", quality=95)
    return root


def write_pacs(root, count=3):
    return write_images(root, pacs.DOMAINS, pacs.CLASSES, count)
