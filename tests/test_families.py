"""Which error texts are ours. Texts of other errors come first: those must never be taken for ours."""

from __future__ import annotations

import pytest

from inplace_magic.families import FAMILIES, failure_of, family_of, family_of_text
from inplace_magic.report.wording import CATALOGUES

NOT_OURS = [
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "element 0 of tensors does not require grad and does not have a grad_fn",
    "grad can be implicitly created only for scalar outputs",
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
    "view size is not compatible with input tensor's size and stride",
    "One of the differentiated Tensors appears to not have been used in the graph.",
    "DataLoader worker (pid 123) is killed by signal: Killed.",
    "",
]
# Real texts, of this release and of older ones.
OURS = [
    ("modified", "one of the variables needed for gradient computation has been modified by an inplace operation: "
     "[torch.FloatTensor [4]], which is output 0 of Sigmoid, is at version 1; expected version 0 instead."),
    ("modified", "one of the variables needed for gradient computation has been modified by an inplace operation: "
     "[torch.cuda.HalfTensor [1, 1]], which is output 0 of AsStridedBackward0, is at version 3; expected version 2"),
    ("modified", "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not"),
    ("leaf", "a leaf Variable that requires grad is being used in an in-place operation."),
    ("leaf", "a leaf Variable that requires grad has been used in an in-place operation."),
    ("view_of_leaf", "a view of a leaf Variable that requires grad is being used in an in-place operation."),
    ("multi_output_view", "Output 0 of UnbindBackward0 is a view and is being modified inplace. This view is the output"),
    ("multi_output_view", "Output 0 of Unbind is a view and its base or another view of its base has been modified inplace."),
    ("no_grad_view", "A view was created in no_grad mode and is being modified inplace with grad mode enabled."),
    ("no_grad_view", "A view was created in inference mode and is being modified inplace in normal mode."),
    ("no_grad_view", "Output 0 of Select is a view of a view which was created in no_grad mode and is being modified inplace"),
    ("no_grad_view", "A view was created in no_grad mode and its base or another view of its base has been modified inplace"),
    ("second_backward", "Trying to backward through the graph a second time (or directly access saved tensors after they"),
    ("inference", "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode"),
    ("inference", "Inplace update to inference tensor outside InferenceMode is not allowed."),
    ("overlap", "unsupported operation: more than one element of the written-to tensor refers to a single memory location."),
    ("overlap", "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location."),
    ("out_grad", "add(): functions with out=... arguments don't support automatic differentiation, but one of the"),
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_OURS)
def test_another_error_is_left_alone(text: str) -> None:
    assert family_of_text(text) is None
    assert family_of(RuntimeError(text)) is None


@pytest.mark.parametrize("error", [None, ValueError(OURS[0][1]), KeyboardInterrupt(), RuntimeError()])
def test_only_a_runtime_error_can_be_ours(error: BaseException | None) -> None:
    assert family_of(error) is None


def test_an_exception_without_a_text_is_left_alone() -> None:
    class Odd(RuntimeError):
        def __str__(self) -> str:
            raise ValueError

    assert family_of(Odd()) is None


@pytest.mark.parametrize(("family", "text"), OURS, ids=[f"{f}: {t[:40]}" for f, t in OURS])
def test_ours_is_known_by_its_beginning(family: str, text: str) -> None:
    assert family_of(RuntimeError(text)) == family
    assert family_of(RuntimeError(text + "\nForward traceback: ...")) == family


def test_every_family_has_a_headline() -> None:
    assert {f"headline_{family}" for family in FAMILIES} <= set(CATALOGUES["en"])


def test_of_errors_that_are_not_ours_none_is_the_failure_however_they_are_chained() -> None:
    outer, inner = ValueError(), RuntimeError("CUDA out of memory")
    outer.__context__, inner.__context__ = inner, outer  # as nobody should, and some do
    assert failure_of(outer) is None and failure_of(None) is None


def test_the_failure_is_what_an_error_was_raised_from_before_what_was_handled() -> None:
    ours, other, outer = RuntimeError(OURS[0][1]), RuntimeError(OURS[3][1]), ValueError()
    outer.__context__ = other
    assert failure_of(outer) is other
    outer.__cause__ = ours
    assert failure_of(outer) is ours
    assert failure_of(ExceptionGroup("tasks", [KeyError(), outer])) is ours
    outer.__cause__ = None  # and so the context is not shown
    assert failure_of(outer) is None
