"""PACS: 9,991 photos, art paintings, cartoons and sketches of seven classes, in DIR/domain/class/image."""

from pathlib import Path

from calmoe.data.card import DatasetCard
from calmoe.data.domains import SIZE, leave_one_out
from calmoe.data.image_folders import NO_IMAGES, deeper, empty_folders, find_images, image_folder, unpacked
from calmoe.data.shift import ShiftDataset
from calmoe.errors import InputError

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")  # the order in which the paper's code reads them
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def load(data: Path | None, protocol: str = "corrected", target: str = "", size: int = SIZE) -> ShiftDataset:
    """PACS with one of its domains as the target; all four must be there with all classes, and no others."""
    root = image_folder("pacs", data)
    layout = find_images(root)
    for domain in DOMAINS:
        if domain not in layout:
            why = NO_IMAGES if domain in empty_folders(root) else "is missing"
            raise InputError(
                f"{root / domain} {why}: PACS has the domains {', '.join(DOMAINS)}{deeper(root, DOMAINS)}"
            )
        for label in (*CLASSES, *layout[domain]):
            if label not in layout[domain]:
                raise InputError(
                    f"{root / domain / label} has no images: PACS has all classes in all domains"
                )
            if label not in CLASSES:
                raise InputError(f"{root / domain / label} is no class of PACS: is this another dataset?")
    return leave_one_out("pacs", root, {d: layout[d] for d in DOMAINS}, protocol, target, size)


CARD = DatasetCard(load=load, get_it=unpacked("pacs"), domains=DOMAINS)
