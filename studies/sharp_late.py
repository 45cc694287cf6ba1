"""A plug-in for the study of cheaper sharp training: sharp steps only after a plain warm-up."""

from calmoe.methods import Method, register

register(Method(name="sharp_late", title="Sharp after warm-up", gradient="sharp", warmup="plain"))
