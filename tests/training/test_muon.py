"""Muon compared with a decomposition, and its other update with torch's AdamW."""

import copy

import pytest
import torch
from torch import nn

from cases import CASES
from glassformer.training.muon import Muon, orthogonalize
from glassformer.training.optimizers import OPTIMIZERS, optimizer_tensors, restore_optimizer
from glassformer.training.settings import TrainingSettings

close = torch.testing.assert_close
SETTINGS = TrainingSettings(optimizer="muon", lr=0.02, weight_decay=0.0, beta1=0.8, beta2=0.95)


@pytest.mark.parametrize("shape", [(3, 12, 12), (2, 8, 32), (2, 32, 8)])
def test_singular_values_approach_one_and_singular_vectors_stay(shape):
    """Compares with the decomposition: the polynomial is applied to each singular value."""
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, values, v = torch.linalg.svd(matrices, full_matrices=False)
    scaled = values / values.norm(dim=1, keepdim=True)  # the norm of all is the matrix's norm
    expected = scaled
    for _ in range(3):
        expected = 3.4445 * expected - 4.7750 * expected**3 + 2.0315 * expected**5
    close(orthogonalize(matrices), u @ torch.diag_embed(expected) @ v, atol=1e-4, rtol=0)
    assert (expected > scaled).all()
    assert (expected[scaled > 0.05] > 0.6).all()
    assert expected.max() < 1.25
    assert not orthogonalize(torch.zeros(1, 3, 4)).any()


def test_matrices_of_equal_shape_are_updated_as_if_alone():
    weights = [nn.Parameter(torch.randn(6, 3)) for _ in range(3)]
    gradients = [torch.randn(6, 3) for _ in range(3)]
    alone = [nn.Parameter(weight.detach().clone()) for weight in weights]

    def step(parameters, gradients):
        group = {"params": parameters, "scale": 1.0, "weight_decay": 0.1, "is_matrix": True}
        optimizer = Muon([group], lr=0.1, betas=(0.8, 0.95))
        for _ in range(2):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()

    step(weights, gradients)
    for parameter, gradient in zip(alone, gradients, strict=True):
        step([parameter], [gradient])
    for together, single in zip(weights, alone, strict=True):
        close(together, single)


def test_one_step_moves_a_matrix_by_the_learning_rate_in_every_direction():
    weight = nn.Parameter(torch.zeros(8, 4))
    weight.grad = torch.randn(8, 4)
    group = {"params": [weight], "scale": 1.0, "weight_decay": 0.0, "is_matrix": True}
    Muon([group], lr=0.5, betas=(0.8, 0.95)).step()
    close(weight.detach(), -0.5 * 2**0.5 * orthogonalize(weight.grad[None])[0])


def test_a_matrix_follows_its_gradient_and_their_running_mean():
    """Compares four steps with the formulas, written out: Nesterov momentum, then the decay."""
    weight, mean = nn.Parameter(torch.randn(6, 3)), torch.zeros(6, 3)
    group = {"params": [weight], "scale": 1.0, "weight_decay": 0.2, "is_matrix": True}
    optimizer, expected = Muon([group], lr=0.1, betas=(0.8, 0.95)), weight.detach().clone()
    for _ in range(4):
        weight.grad = torch.randn(6, 3)
        mean = 0.95 * mean + 0.05 * weight.grad
        direction = 0.95 * mean + 0.05 * weight.grad
        update = orthogonalize(direction[None])[0]
        expected = (1 - 0.1 * 0.2) * expected - 0.1 * 2**0.5 * update
        optimizer.step()
        close(weight.detach(), expected)


def test_other_parameters_get_the_update_of_adamw():
    ours = nn.Parameter(torch.randn(5))
    theirs = nn.Parameter(ours.detach().clone())
    group = {"params": [ours], "scale": 1.0, "weight_decay": 0.1, "is_matrix": False}
    optimizers = (
        Muon([group], lr=0.03, betas=(0.8, 0.95)),
        torch.optim.AdamW([theirs], lr=0.03, betas=(0.8, 0.95), weight_decay=0.1),
    )
    for _ in range(4):
        ours.grad = torch.randn(5)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    close(ours, theirs)


def test_only_matrices_inside_the_layers_are_orthogonalized():
    network = CASES["speedrun with a prior"].network
    optimizer = OPTIMIZERS["muon"].make(network, SETTINGS, None)
    names = {id(p): name for name, p in network.named_parameters()}
    groups = {names[id(p)]: group for group in optimizer.param_groups for p in group["params"]}
    assert groups.keys() == {name for name, _ in network.named_parameters()}
    matrices = {name for name, group in groups.items() if group["is_matrix"]}
    layers = ("query", "key", "value", "out", "up", "down")
    assert matrices == {n for n in groups if n.startswith("blocks.") and n.split(".")[-2] in layers}
    assert groups["token.weight"]["scale"] == 1.0 > groups["head.weight"]["scale"]


def test_the_state_is_restored_and_a_wrong_one_rejected():
    network = copy.deepcopy(CASES["speedrun"].network)
    optimizer = OPTIMIZERS["muon"].make(network, SETTINGS, None)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter) * 1e-9
    optimizer.step()
    network.zero_grad()
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizer).items()}
    other = OPTIMIZERS["muon"].make(network, SETTINGS, None)
    restore_optimizer("muon", other, tensors)
    restored = optimizer_tensors(other)
    assert tensors.keys() == restored.keys()
    for name, value in tensors.items():
        assert torch.equal(restored[name], value), name
    matrix = next(n for n in tensors if f"{n.split('.')[0]}.exp_avg_sq" not in tensors)
    with pytest.raises(ValueError, match="does not match the optimizer muon"):
        restore_optimizer("muon", other, {**tensors, matrix: torch.zeros(1)})
