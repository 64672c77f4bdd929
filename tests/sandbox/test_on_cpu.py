"""Code that asks for a device that is not there, run on the CPU: here CUDA, of which a build for the CPU has the names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from inplace_magic.sandbox.replica.on_cpu import on_cpu


def test_all_is_as_before_afterwards() -> None:
    names = "Generator", "default_generator", "cuda.is_available", "cuda.manual_seed", "amp.autocast", "amp.GradScaler"
    inits = torch.amp.autocast.__init__, torch.amp.GradScaler.__init__  # type: ignore[misc]

    def look() -> list[Any]:
        found = []
        for name in names:
            value: Any = torch
            for part in name.split("."):
                value = getattr(value, part)
            found.append(value)
        return found

    before, state = look(), torch.get_rng_state()
    with on_cpu("cuda"):
        torch.zeros(2, device="cuda")
    assert all(one is other for one, other in zip(before, look()))
    assert inits == (torch.amp.autocast.__init__, torch.amp.GradScaler.__init__)  # type: ignore[misc]
    assert torch.equal(state, torch.get_rng_state())


def test_other_devices_stay_what_they_are() -> None:
    with on_cpu("cuda"):
        assert torch.zeros(2, device="meta").device.type == "meta"
        assert torch.zeros(2).to("meta").device.type == "meta"
        assert torch.device("meta").type == "meta"


MADE: list[Any] = [
    pytest.param(lambda: torch.zeros(2, device="cuda"), id="by its name"),
    pytest.param(lambda: torch.zeros(2, device="cuda:1"), id="by its name and number"),
    pytest.param(lambda: torch.zeros(2, device=torch.device("cuda", 0)) + torch.ones(2), id="by its device"),
    pytest.param(lambda: torch.zeros(2).to("cuda", non_blocking=True), id="to"),
    pytest.param(lambda: torch.zeros(2).to(torch.device("cuda"), torch.float64), id="to with a type"),
    pytest.param(lambda: torch.zeros(2).cuda(), id="cuda()"),
    pytest.param(lambda: torch.zeros(2, pin_memory=True), id="pinned"),
    pytest.param(lambda: torch.zeros(2).pin_memory(), id="pinned afterwards"),
    pytest.param(lambda: torch.randn(2, device="cuda", generator=torch.Generator("cuda")), id="a generator"),
    pytest.param(lambda: nn.Linear(2, 2).cuda().weight, id="a module's cuda()"),
    pytest.param(lambda: nn.Linear(2, 2, device="cuda").weight, id="a module by its device"),
    pytest.param(lambda: nn.Linear(2, 2).to("cuda").weight, id="a module's to"),
    pytest.param(lambda: torch.tensor([1.0], device="cuda"), id="from a list"),
    pytest.param(lambda: torch.zeros_like(torch.ones(2), device="cuda"), id="like another"),
]


@pytest.mark.parametrize("make", MADE)
def test_what_is_asked_for_on_the_device_is_on_the_cpu(make: Callable[[], torch.Tensor]) -> None:
    with on_cpu("cuda"):
        assert make().device.type == "cpu"


def test_a_device_is_that_of_the_tensors_on_it() -> None:
    with on_cpu("cuda"):
        for device in (torch.device("cuda", 1), torch.device("cuda:1"), torch.device("cuda")):
            assert torch.zeros(2, device=device).device == device


def test_a_default_device_is_the_cpu() -> None:
    with on_cpu("cuda"):
        with torch.device("cuda"):
            assert torch.zeros(2).device.type == "cpu"
        torch.set_default_device("cuda")
        try:
            assert nn.Linear(2, 2).weight.device.type == "cpu"
        finally:
            torch.set_default_device(None)


def test_seeding_the_device_seeds_what_stands_for_it() -> None:
    with on_cpu("cuda"):
        drawn = []
        for seed in (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
            seed(3)
            drawn.append(torch.rand(2, device="cuda").tolist())
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_generator_is_one_to_isinstance() -> None:
    with on_cpu("cuda"):
        made = torch.Generator(device="cuda").manual_seed(3)
        assert isinstance(made, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
        assert not isinstance(3, torch.Generator)


def test_mixed_precision_runs() -> None:
    with on_cpu("cuda"):
        weight = torch.ones(2, 2, device="cuda", requires_grad=True)
        scaler = torch.amp.GradScaler("cuda")
        opt = torch.optim.SGD([weight], lr=0.1)
        for kind in (torch.autocast("cuda", dtype=torch.bfloat16), torch.amp.autocast(device_type="cuda")):
            with kind:
                loss = (weight @ weight).float().sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        assert isinstance(scaler, torch.amp.GradScaler) and weight[0, 0] < 1


def test_questions_about_the_device_have_an_answer() -> None:
    with on_cpu("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.set_device(0)
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
        assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0
