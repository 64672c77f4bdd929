# %% [case]
# id: dark-replay-buffer-stores-live-logits
# source: aimagelab/mammoth models/der.py and utils/buffer.py (logits=outputs.data there); pytorch/examples#151 (replayed experiences go backward twice)
# family: second_backward
# fails: 5
# culprit: 4:21
# saved: -
# needed: 4:19
# effect: truncates
# observe: [p.detach().clone() for p in model.net.parameters()]
# note: the reservoir keeps the network's outputs with their graph (writing them row by row makes the whole buffer part of it), so the distillation term of the next batch walks into the freed graph. Fix: store outputs.detach(); not retain_graph.
# %%
from argparse import Namespace
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

args = Namespace(lr=0.05, alpha=0.3, beta=0.5, minibatch_size=4, buffer_size=12, seed=5)
torch.manual_seed(args.seed)
np.random.seed(args.seed)
# %%
def reservoir(num_seen_examples: int, buffer_size: int) -> int:
    if num_seen_examples < buffer_size:
        return num_seen_examples
    rand = np.random.randint(0, num_seen_examples + 1)
    return rand if rand < buffer_size else -1


class Buffer:
    """The memory buffer of rehearsal method."""
    attributes = ['examples', 'labels', 'logits']

    def __init__(self, buffer_size):
        self.buffer_size = buffer_size
        self.num_seen_examples = 0

    def init_tensors(self, **kwargs):
        for attr_str in self.attributes:
            attr = kwargs[attr_str]
            if not hasattr(self, attr_str):
                typ = torch.int64 if attr_str.endswith('els') else torch.float32
                setattr(self, attr_str, torch.zeros((self.buffer_size, *attr.shape[1:]), dtype=typ))

    def add_data(self, examples, labels, logits):
        if not hasattr(self, 'examples'):
            self.init_tensors(examples=examples, labels=labels, logits=logits)
        for i in range(examples.shape[0]):
            index = reservoir(self.num_seen_examples, self.buffer_size)
            self.num_seen_examples += 1
            if index >= 0:
                self.examples[index] = examples[i]
                self.labels[index] = labels[i]
                self.logits[index] = logits[i]

    def get_data(self, size):
        n = min(self.num_seen_examples, self.buffer_size)
        choice = np.random.choice(n, size=min(size, n), replace=False)
        return tuple(getattr(self, attr_str)[choice] for attr_str in self.attributes)

    def is_empty(self):
        return self.num_seen_examples == 0
# %%
class ContinualModel(nn.Module):
    NAME = None

    def __init__(self, backbone, args):
        super().__init__()
        self.net, self.args = backbone, args
        self.opt = torch.optim.SGD(self.net.parameters(), lr=args.lr)

    def forward(self, x):
        return self.net(x)
# %%
class DerPP(ContinualModel):
    NAME = 'derpp'

    def __init__(self, backbone, args):
        super().__init__(backbone, args)
        self.buffer = Buffer(args.buffer_size)

    def observe(self, inputs, labels, not_aug_inputs):
        self.opt.zero_grad()
        outputs = self.net(inputs)
        loss = F.cross_entropy(outputs, labels)

        if not self.buffer.is_empty():
            buf_inputs, _, buf_logits = self.buffer.get_data(self.args.minibatch_size)
            loss += self.args.alpha * F.mse_loss(self.net(buf_inputs), buf_logits)
            buf_inputs, buf_labels, _ = self.buffer.get_data(self.args.minibatch_size)
            loss += self.args.beta * F.cross_entropy(self.net(buf_inputs), buf_labels)

        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels, logits=outputs)
        return loss.item()
# %%
model = DerPP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)), args)
for task in range(2):
    for _ in range(4):
        labels = torch.randint(2 * task, 2 * task + 2, (5,))
        inputs = F.one_hot(labels, 6).float() + .3 * torch.randn(5, 6)
        loss = model.observe(inputs + .05 * torch.randn_like(inputs), labels, inputs)
    print('task', task, 'loss %.3f' % loss, 'seen', model.buffer.num_seen_examples)
# %% [fixed 4]
class DerPP(ContinualModel):
    NAME = 'derpp'

    def __init__(self, backbone, args):
        super().__init__(backbone, args)
        self.buffer = Buffer(args.buffer_size)

    def observe(self, inputs, labels, not_aug_inputs):
        self.opt.zero_grad()
        outputs = self.net(inputs)
        loss = F.cross_entropy(outputs, labels)

        if not self.buffer.is_empty():
            buf_inputs, _, buf_logits = self.buffer.get_data(self.args.minibatch_size)
            loss += self.args.alpha * F.mse_loss(self.net(buf_inputs), buf_logits)
            buf_inputs, buf_labels, _ = self.buffer.get_data(self.args.minibatch_size)
            loss += self.args.beta * F.cross_entropy(self.net(buf_inputs), buf_labels)

        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels, logits=outputs.detach())
        return loss.item()
