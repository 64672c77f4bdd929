"""A graph network that passes messages along the edges of a ring."""

import torch
import torch.nn.functional as F
from torch import nn

NODES, FEATURES, CLASSES = 12, 5, 3


class Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.message = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = F.elu(self.message(x))[source]
        received = torch.zeros(x.size(0), messages.size(1)).index_add_(0, target, messages)
        degree = torch.bincount(target, minlength=x.size(0)).clamp(min=1)
        out = torch.sigmoid(self.own(x))
        out = out + received / degree[:, None]
        return F.layer_norm(out, out.shape[1:])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Layer(FEATURES, 8), Layer(8, CLASSES)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.relu(self.first(x, edges)), 0.2, self.training)
        return F.log_softmax(self.second(x, edges), dim=1)


def main() -> None:
    torch.manual_seed(0)
    nodes = torch.arange(NODES)
    edges = torch.stack([torch.cat([nodes, nodes.roll(1)]), torch.cat([nodes.roll(1), nodes])])
    x, y = torch.randn(NODES, FEATURES), torch.randint(0, CLASSES, (NODES,))
    known = torch.arange(NODES) < 8
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02, weight_decay=5e-4)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.nll_loss(net(x, edges)[known], y[known])
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
