"""Muon: SGD with momentum whose updates of matrices are orthogonalized (Jordan et al., 2024).

Every direction of a matrix is then updated by the same amount, not only the few that dominate the
gradient. Vectors, embeddings and heads get AdamW's update.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOMENTUM, EPS = 0.95, 1e-8
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients that quickly push singular values to ~1
ITERATIONS = 3  # more cost time and improved no loss that we measured (docs/measurements.md)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Move the singular values of each matrix (n r c) towards 1; only very small ones stay below.

    U S Vᵀ becomes approximately U Vᵀ, by iterating a polynomial of the matrix instead of computing
    its SVD. This is done in float32: on many CPUs, bfloat16 is far slower.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # the polynomial needs values <= 1
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Muon for groups of matrices (`is_matrix`), AdamW for the others."""

    def __init__(
        self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if group["is_matrix"]:
                for shape in dict.fromkeys(p.shape for p in parameters):  # equal shapes together
                    self.update_matrices([p for p in parameters if p.shape == shape], group)
            else:
                for parameter in parameters:
                    self.update_adamw(parameter, group)

    def update_matrices(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        directions = []
        for matrix in matrices:
            assert matrix.grad is not None
            momentum = self.get_moment(matrix, "exp_avg")
            momentum.lerp_(matrix.grad, 1 - MOMENTUM)
            directions.append(matrix.grad.lerp(momentum, MOMENTUM))  # Nesterov momentum
        rows, columns = matrices[0].shape
        # a tall matrix gets a larger update, so that its outputs change as much as a square one's
        step_size = group["lr"] * max(1.0, rows / columns) ** 0.5
        for matrix, update in zip(matrices, orthogonalize(torch.stack(directions)), strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-step_size)

    def get_moment(self, parameter: Tensor, name: str) -> Tensor:
        """The moving average `name` of a parameter's gradients, which starts at zero."""
        state = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter)
        moment: Tensor = state[name]
        return moment

    def update_adamw(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        beta1, beta2 = group["betas"]
        step = state.setdefault("step", torch.zeros(()))
        mean, square = (self.get_moment(parameter, name) for name in ("exp_avg", "exp_avg_sq"))
        step += 1
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step_size = group["lr"] / (1 - beta1 ** float(step))
        denominator = (square / (1 - beta2 ** float(step))).sqrt_().add_(EPS)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.addcdiv_(mean, denominator, value=-step_size)
