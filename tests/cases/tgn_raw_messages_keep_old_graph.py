# %% [case]
# id: tgn-raw-messages-keep-old-graph
# source: twitter-research/tgn#25 and #8 (memory_update_at_start, detach_memory)
# family: second_backward
# fails: 4
# culprit: -
# saved: 2:15 | 2:16
# needed: 4:7
# effect: truncates
# observe: [batch_losses, tgn.memory_updater.weight_hh.detach().clone()]
# note: raw messages hold the memory rows of the batch that stored them, with their graph; detach_memory only detaches the memory. The next batch's memory update goes through the freed graph. Human fix (the repository's): detach the stored messages as well.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import defaultdict
torch.manual_seed(25)

class Memory:
    def __init__(self, n_nodes, memory_dimension):
        self.n_nodes, self.memory_dimension = n_nodes, memory_dimension
        self.__init_memory__()

    def __init_memory__(self):
        self.memory = torch.zeros(self.n_nodes, self.memory_dimension)
        self.messages = defaultdict(list)

    def store_raw_messages(self, nodes, node_id_to_messages):
        for node in nodes:
            self.messages[node].extend(node_id_to_messages[node])

    def clear_messages(self, nodes):
        for node in nodes:
            self.messages[node] = []

    def detach_memory(self):
        self.memory = self.memory.detach()
# %%
class TGN(nn.Module):
    def __init__(self, n_nodes, edge_features, memory_dim=5):
        super().__init__()
        self.edge_features = edge_features
        self.memory = Memory(n_nodes, memory_dim)
        self.memory_updater = nn.GRUCell(2 * memory_dim + edge_features.shape[1], memory_dim)
        self.node_features = nn.Embedding(n_nodes, memory_dim)
        self.embed = nn.Sequential(nn.Linear(2 * memory_dim, 8), nn.Tanh(), nn.Linear(8, 4))

    def get_updated_memory(self):
        nodes = [n for n, msgs in self.memory.messages.items() if msgs]
        if not nodes:
            return self.memory.memory
        last = torch.stack([self.memory.messages[n][-1] for n in nodes])     # "last" aggregator
        new = self.memory_updater(last, self.memory.memory[nodes])
        return self.memory.memory.index_copy(0, torch.tensor(nodes), new)

    def get_raw_messages(self, src, dst, edge_idxs):
        messages = defaultdict(list)
        for s, d, e in zip(src.tolist(), dst.tolist(), edge_idxs.tolist()):
            msg = torch.cat([self.memory.memory[s], self.memory.memory[d], self.edge_features[e]])
            messages[s].append(msg)
        return list(messages), messages

    def compute_edge_probabilities(self, src, dst, neg, edge_idxs):
        # memory_update_at_start: use what the previous batch left behind
        self.memory.memory = self.get_updated_memory()
        self.memory.clear_messages(list(self.memory.messages))
        h = self.embed(torch.cat([self.memory.memory, self.node_features.weight], 1))
        self.memory.store_raw_messages(*self.get_raw_messages(src, dst, edge_idxs))
        return (h[src] * h[dst]).sum(1), (h[src] * h[neg]).sum(1)
# %%
n_nodes, n_edges, BATCH_SIZE = 7, 12, 4
sources, destinations = torch.randint(0, 4, (n_edges,)), torch.randint(4, 7, (n_edges,))
tgn = TGN(n_nodes, torch.randn(n_edges, 3))
optimizer = torch.optim.Adam(tgn.parameters(), lr=1e-2)
criterion = nn.BCEWithLogitsLoss()
# %%
batch_losses = []
for k in range(0, n_edges, BATCH_SIZE):
    idx = torch.arange(k, k + BATCH_SIZE)
    pos, neg = tgn.compute_edge_probabilities(sources[idx], destinations[idx], destinations[idx.flip(0)], idx)
    loss = criterion(pos, torch.ones_like(pos)) + criterion(neg, torch.zeros_like(neg))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    batch_losses.append(loss.item())
    # Detach memory so we don't backpropagate to the start of time
    tgn.memory.detach_memory()
# %% [fixed 1]
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import defaultdict
torch.manual_seed(25)

class Memory:
    def __init__(self, n_nodes, memory_dimension):
        self.n_nodes, self.memory_dimension = n_nodes, memory_dimension
        self.__init_memory__()

    def __init_memory__(self):
        self.memory = torch.zeros(self.n_nodes, self.memory_dimension)
        self.messages = defaultdict(list)

    def store_raw_messages(self, nodes, node_id_to_messages):
        for node in nodes:
            self.messages[node].extend(node_id_to_messages[node])

    def clear_messages(self, nodes):
        for node in nodes:
            self.messages[node] = []

    def detach_memory(self):
        self.memory = self.memory.detach()
        for node, msgs in self.messages.items():
            self.messages[node] = [m.detach() for m in msgs]
