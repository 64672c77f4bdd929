"""A word language model: an LSTM over batches of a text, its state carried on and cut off."""

import argparse
import math

import torch
from torch import nn

TEXT = "the cat sat on the mat and the dog sat on the log while the cat saw the dog " * 12


class Model(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(width, width, num_layers=2)
        self.decode = nn.Linear(width, words)
        self.decode.weight = self.embed.weight  # tied
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, words: torch.Tensor, hidden: tuple) -> tuple:
        output, hidden = self.rnn(self.drop(self.embed(words)), hidden)
        return self.decode(self.drop(output)), hidden

    def init_hidden(self, batch: int) -> tuple:
        weight = next(self.parameters())
        return tuple(weight.new_zeros(2, batch, self.rnn.hidden_size) for _ in range(2))


def batchify(ids: torch.Tensor, batch: int) -> torch.Tensor:
    rows = ids.size(0) // batch
    return ids[: rows * batch].view(batch, -1).t().contiguous()


def repackage(hidden: tuple) -> tuple:
    return tuple(state.detach() for state in hidden)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bptt", type=int, default=8)
    parser.add_argument("--clip", type=float, default=0.25)
    args = parser.parse_args()
    torch.manual_seed(1)
    words = TEXT.split()
    index = {word: i for i, word in enumerate(sorted(set(words)))}
    data = batchify(torch.tensor([index[word] for word in words]), 4)
    model = Model(len(index), 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    hidden = model.init_hidden(4)
    total = 0.0
    for start in range(0, data.size(0) - 1, args.bptt):
        length = min(args.bptt, data.size(0) - 1 - start)
        source, target = data[start : start + length], data[start + 1 : start + 1 + length]
        optimizer.zero_grad()
        hidden = repackage(hidden)
        output, hidden = model(source, hidden)
        loss = nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.item()
    print(f"perplexity {math.exp(loss.item()):.2f}")


if __name__ == "__main__":
    main()
