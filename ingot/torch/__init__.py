"""PyTorch's entry points besides `ingot.compile`: the back end of torch.compile. Level 10.

    torch.compile(model, backend="ingot", options={"threads": 2})

Found by the entry-point group `torch_dynamo_backends`; where Ingot is not installed, importing this
package registers it.
"""

from ingot.torch.backend import ingot
from ingot.torch.operators import converter, operator

__all__ = ["converter", "ingot", "operator"]
