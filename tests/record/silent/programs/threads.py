"""Another thread writes, where a function mode hears nothing."""

from __future__ import annotations

from .program import Program

THREADS = [
    Program("a worker thread writes .data", """
        buffer = torch.ones(6)
        def work():
            torch.ones(1)
            buffer.data.copy_(torch.full((6,), 7.0))  #!
        loss = (buffer * x).square().sum()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        loss.backward()
    """),
    Program("a pool's thread clamps a saved weight", """
        def clip(p):
            torch.ones(1)
            p.data.clamp_(-0.1, 0.1)  #!
        loss = (v @ w).tanh().square().sum()
        loss = loss + ((v * v) @ w).sum()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(clip, w).result()
        loss.backward()
    """),
    Program("a thread of an earlier cell writes an array", """
        loss = (torch.from_numpy(frames) * x).square().sum()
        jobs.put(1)  #-
        jobs.join()
        loss.backward()
        jobs.put(None)
        worker.join()
    """, setup="""
        frames = numpy.ones(6)
        jobs = queue.Queue()
        def work():
            while jobs.get() is not None:
                frames[:] = 7  #<
                jobs.task_done()
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
    """, line=False, fixable=False),
]  # fmt: skip
