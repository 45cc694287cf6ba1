"""What every backbone is: a module whose features have a known width."""

from torch import nn


class Backbone(nn.Module):
    """Rows to features [N, out_features]. Its keyword arguments are fields of `ModelSettings`."""

    out_features: int
