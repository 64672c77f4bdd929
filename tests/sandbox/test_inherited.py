"""What a forked child does to shared memory, files and pipes does not reach its parent."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import traceback

import numpy as np
import pytest
import torch

from inplace_magic.sandbox.inherited import set_apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
linux = pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed on Linux only")


def in_a_child(job):
    """Run job() set apart in a child; its pickled result, or its traceback as text."""
    receive, send = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            assert set_apart([send.fileno()]) is None
            send.send(job())
        except BaseException:
            send.send(traceback.format_exc())
        finally:
            os._exit(0)
    try:
        assert receive.poll(30), "the child hangs"
        return receive.recv()
    finally:
        receive.close()
        send.close()
        os.waitpid(pid, 0)


@linux
def test_a_tensor_in_shared_memory():
    tensor = torch.arange(1000.0).share_memory_()
    assert in_a_child(lambda: tensor.mul_(2).sum().item()) == 999_000
    assert tensor.sum() == 499_500


@linux
def test_a_module_in_shared_memory():
    net = torch.nn.Linear(3, 3).share_memory()
    before = [p.detach().clone() for p in net.parameters()]
    in_a_child(lambda: [p.data.zero_() for p in net.parameters()] and None)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))


@linux
def test_an_array_mapped_to_a_file(tmp_path):
    array = np.memmap(tmp_path / "a.bin", mode="w+", dtype="float64", shape=(1000,))
    array[:] = 1

    def job():
        array[:] = 5
        array.flush()
        return float(array.sum())

    assert in_a_child(job) == 5000
    assert array.sum() == 1000


@linux
def test_shared_memory_of_multiprocessing():
    numbers = multiprocessing.RawArray("i", [1, 2, 3])
    assert in_a_child(lambda: (numbers.__setitem__(0, 9), numbers[0])[1]) == 9
    assert numbers[0] == 1


def test_a_position_in_a_file(tmp_path):
    (tmp_path / "lines.txt").write_text("line\n" * 100_000)
    with open(tmp_path / "lines.txt") as lines:
        lines.readline()
        assert in_a_child(lambda: len(lines.read())) == 499_995
        assert len(lines.read()) == 499_995


def test_a_deleted_file_can_be_read_on(tmp_path):
    (tmp_path / "gone.txt").write_text("abc")
    with open(tmp_path / "gone.txt") as gone:
        os.remove(tmp_path / "gone.txt")
        assert in_a_child(gone.read) == "abc"
        assert gone.read() == "abc"


def test_a_file_that_is_written(tmp_path):
    with open(tmp_path / "out.txt", "w") as out:
        out.write("theirs")
        out.flush()
        in_a_child(lambda: out.write("ours") and out.flush())
    assert (tmp_path / "out.txt").read_text() == "theirs"


@linux
def test_a_file_that_is_read_and_written(tmp_path):
    with open(tmp_path / "both.txt", "w+") as both:
        both.write("theirs")
        both.flush()

        def job():
            both.write(" and ours")
            both.seek(0)
            return both.read()

        assert in_a_child(job) == "theirs and ours"
        both.seek(0)
        assert both.read() == "theirs"


def test_a_pipe_and_a_connection():
    read_end, write_end = os.pipe()
    left, right = socket.socketpair()
    with left, right:

        def job():
            os.write(write_end, b"ours")
            try:
                left.sendall(b"ours")
            except OSError:
                return "refused"

        assert in_a_child(job) == "refused"
        for descriptor in (read_end, right.fileno()):
            os.set_blocking(descriptor, False)
            with pytest.raises(BlockingIOError):
                os.read(descriptor, 10)
    os.close(read_end)
    os.close(write_end)


def test_workers_of_a_loader_start_all_the_same():
    def job():
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2)
        return sum(batch.sum().item() for (batch,) in loader)

    assert in_a_child(job) == 28.0
